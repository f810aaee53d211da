-- Adds an item, or refuses it; never takes another's place. ARGV behind who asks: body, limits of user and total,
-- how many items of others may expire at once. Answers 'ok', 'user' or 'total'.
local who = asked()
local key, own = base .. 'i:' .. who.id, base .. 'u:' .. who.owner

-- Lets items expire whose time is over, from the oldest on until one has time left.
local function expire(set_of, last)
  if ttl == 0 then
    return
  end
  for _, id in ipairs(call('ZRANGE', set_of, 0, last)) do
    local one = load(id)
    if one and tonumber(one.at) + ttl > now then
      return
    end
  end
end

if call('EXISTS', key) == 1 then -- asked twice, by a connection that broke
  return 'ok'
end
expire(own, -1)
expire(waiting, tonumber(ARGV[15]) - 1)
local full = call('ZCARD', own) >= tonumber(ARGV[13]) and 'user'
  or call('ZCARD', waiting) >= tonumber(ARGV[14]) and 'total'
if full then
  note('d', who.owner, 'denied', 'queue_full', who.note)
  return full
end
local number = call('INCR', base .. 'number')
call('HSET', key, 'owner', who.owner, 'tenant', who.tenant, 'at', written(now), 'state', 'pending', 'token', '',
  'ends', '0', 'error', '', 'attempts', '0', 'memory', '', 'body', ARGV[12])
call('ZADD', waiting, number, who.id)
call('ZADD', own, number, who.id)
note('a', who.owner, 'enqueue', '-', who.note)
return 'ok'
