-- Ends an approval. ARGV behind who asks: memory id, or '' where the callback failed. Answers {state or '', memory id}.
-- A memory that was stored counts, however late; a failure only where nobody else approves by now.
local who, memory = asked(), ARGV[12]
local one = read(who.id)
if not one then
  return { '', '' }
end
local action = 'store_failed'
if memory ~= '' then
  local late = one.state == 'rejected' or one.state == 'expired'
  action = late and 'stored_late' or 'stored'
end
local same = one.token == who.token
if same and ((memory ~= '' and one.state == 'stored')
    or (memory == '' and one.state == 'pending' and one.error == 'store_failed')) then
  return { one.state, one.memory } -- asked twice, by a connection that broke
end
if memory ~= '' and open(one) then
  set(one, { memory = memory, token = who.token })
  finish(one, 'stored')
elseif memory == '' and open(one) and same then
  set(one, { state = 'pending', error = 'store_failed' })
end
note('a', one.owner, action, code(one, who), who.note)
return { one.state, one.memory }
