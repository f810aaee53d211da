-- What every script of the queue begins with. Keys, behind the base in ARGV[1]:
--   i:<queue id>    hash: an item; of a decided one without its body, for as long as what became of it is told
--   w               sorted set of the ids of pending and approving items by number: oldest first
--   u:<owner>       the same of one owner
--   a:<owner>       list of audit rows, newest first: number, time, action, code, note
--   d:<owner>       the same of denied attempts, so that they push out nothing else
--   number          the last number given
-- ARGV: base, now or '' for the server's clock, ttl or 0, audit rows kept, how long decided ids are remembered.
-- Times are microseconds, written out in full: as numbers they would be rounded.
local call, base = redis.call, ARGV[1]
local ttl, rows, remembered = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local now = tonumber(ARGV[2])
if not now then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end
local waiting = base .. 'w'

local function written(number)
  return string.format('%.0f', number)
end

local function note(kind, owner, action, code, text)
  local list = base .. kind .. ':' .. owner
  local number = call('INCR', base .. 'number')
  call('LPUSH', list, table.concat({ number, written(now), action, code, text }, ' '))
  call('LTRIM', list, 0, rows - 1)
end

local function set(one, fields)
  local flat = {}
  for name, value in pairs(fields) do
    one[name] = value
    flat[#flat + 1] = name
    flat[#flat + 1] = value
  end
  call('HSET', one.key, unpack(flat))
end

local function open(one)
  return one.state == 'pending' or one.state == 'approving'
end

local function read(id)
  local key = base .. 'i:' .. id
  local found = call('HMGET', key, 'owner', 'tenant', 'at', 'state', 'token', 'ends', 'error', 'attempts', 'memory')
  if not found[1] then
    return nil
  end
  local one = { id = id, key = key, owner = found[1], tenant = found[2], at = found[3], state = found[4] }
  one.token, one.ends, one.error, one.attempts, one.memory = found[5], found[6], found[7], found[8], found[9]
  if not open(one) and tonumber(one.ends) <= now then
    return nil
  end
  return one
end

local function finish(one, state)
  set(one, { state = state, ends = written(now + remembered) })
  call('HDEL', one.key, 'body')
  call('PEXPIRE', one.key, written(remembered / 1000))
  call('ZREM', waiting, one.id)
  call('ZREM', base .. 'u:' .. one.owner, one.id)
end

-- An item as it stands now: a lease may have run out, or its time.
local function load(id)
  local one = read(id)
  if not one then
    return nil
  end
  if one.state == 'approving' and tonumber(one.ends) <= now then
    set(one, { state = 'pending', error = 'store_interrupted' })
  end
  if one.state == 'pending' and ttl > 0 and tonumber(one.at) + ttl <= now then
    finish(one, 'expired')
    note('a', one.owner, 'expired', '-', '{"actor":"groundwire","queue_id":"' .. id .. '"}')
  end
  return one
end

local function shown(one)
  return { one.id, call('HGET', one.key, 'body') or '', one.at, one.state, one.error, one.attempts }
end

-- Who asks, in ARGV from the sixth on: queue id, tenant, owner, 1 where delegated, token, note.
local function asked()
  local delegated = ARGV[9] == '1'
  return { id = ARGV[6], tenant = ARGV[7], owner = ARGV[8], delegated = delegated, token = ARGV[10], note = ARGV[11] }
end

local function may_decide(one, who)
  return one.owner == who.owner or (who.delegated and one.tenant == who.tenant)
end

local function code(one, who)
  return one.owner == who.owner and '-' or 'delegated'
end

-- Notes an attempt that was refused with who tried and, where there is an item, with its owner.
local function deny(one, who)
  local state = one and may_decide(one, who) and one.state or ''
  local why = state == '' and 'unauthorized' or state
  note('d', who.owner, 'denied', why, who.note)
  if one and one.owner ~= who.owner then
    note('d', one.owner, 'denied', why, who.note)
  end
  return { state, state == '' and '' or one.memory }
end
