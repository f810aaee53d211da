-- Turns a pending item into a rejected one. Answers {'pending', ''} where that was done, else as begin.lua.
local who = asked()
local one = load(who.id)
if one and one.state == 'rejected' and one.token == who.token then -- asked twice, by a connection that broke
  return { 'pending', '' }
end
if not one or not may_decide(one, who) or one.state ~= 'pending' then
  return deny(one, who)
end
set(one, { token = who.token })
finish(one, 'rejected')
note('a', one.owner, 'reject', code(one, who), who.note)
return { 'pending', '' }
