-- Keeps an entry in place of what was there. Where there are too many, those past their time go first, then those
-- longest unused; no more than 100 a call, where the bound was lowered.
-- ARGV: base, entry, its JSON, its lifetime and that of the index in milliseconds, scope or '', entries allowed.
-- Answers {evicted, expired}.
local entry, value, scope = ARGV[2], ARGV[3], ARGV[6]
local lifetime, index_lifetime, allowed = tonumber(ARGV[4]), ARGV[5], tonumber(ARGV[7])

forget(entry)
call('SET', entries .. entry, scope .. '\n' .. value, 'PX', lifetime)
call('ZADD', used, written(now), entry)
call('ZADD', due, written(now + lifetime * 1000), entry)
local index = { used, due }
if scope ~= '' then
  call('HSET', scopes, entry, scope)
  call('ZADD', members .. scope, written(now), entry)
  index = { used, due, scopes, members .. scope }
end
for i = 1, #index do
  call('PEXPIRE', index[i], index_lifetime)
end

local evicted, expired = 0, 0
for _ = 1, 100 do
  if call('ZCARD', used) <= allowed then
    break
  end
  local past = call('ZRANGEBYSCORE', due, '-inf', written(now), 'LIMIT', 0, 1)[1]
  if past then
    forget(past)
    expired = expired + 1
  else
    forget(call('ZRANGE', used, 0, 0)[1])
    evicted = evicted + 1
  end
end
return { evicted, expired }
