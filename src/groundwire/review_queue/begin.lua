-- Turns a pending item into an approving one. ARGV behind who asks: how long it is held.
-- Answers the item, or {state or '', memory id} of what is no business of the one who asks, or cannot be approved.
local who = asked()
local one = load(who.id)
if one and one.state == 'approving' and one.token == who.token then -- asked twice, by a connection that broke
  return shown(one)
end
if not one or not may_decide(one, who) or one.state ~= 'pending' then
  return deny(one, who)
end
set(one, { state = 'approving', token = who.token, ends = written(now + tonumber(ARGV[12])) })
set(one, { attempts = written(one.attempts + 1) })
note('a', one.owner, 'approve', code(one, who), who.note)
return shown(one)
