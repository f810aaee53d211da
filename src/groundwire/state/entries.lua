-- What step.lua, review.lua and load.lua share; sent to the server in front of each.
-- ARGV[1] is the deployment's prefix, ARGV[2] the seconds for which an outcome without a place in the index
-- or the queue is kept. docs/state.md describes the keys.
local call, sub, match, find = redis.call, string.sub, string.match, string.find
local prefix, lifetime = ARGV[1], ARGV[2]
local queue = prefix .. 'q'
local DIGEST = 22 -- characters of 16 bytes in base64
local KEY, LOCAL_ID, TOKEN = 8, 4, 8 -- bytes
local HEADER = 12 -- bytes of a signature before its tokens
local CHUNK = 1000 -- arguments of one call: unpack has a limit

local function split(joined, size)
  local parts = {}
  for at = 1, #joined, size do
    parts[#parts + 1] = sub(joined, at, at + size - 1)
  end
  return parts
end

-- The fields that `pack` of groundwire.state.entries has joined, under their names.
local function fields_of(packed, names)
  local lengths = { struct.unpack('<' .. string.rep('I4', #names), packed) }
  local fields, at = {}, 4 * #names + 1
  for i = 1, #names do
    fields[names[i]] = sub(packed, at, at + lengths[i] - 1)
    at = at + lengths[i]
  end
  return fields
end

-- A counter; one that is back at zero leaves no field behind.
local function count(field, by)
  if call('HINCRBY', queue, field, by) <= 0 then
    call('HDEL', queue, field)
  end
end

local function count_place(subject, by)
  count('total', by)
  count('t:' .. subject.tenant, by)
  count('u:' .. subject.user, by)
end

-- The values of hash fields, false where there is none, in the order of the fields.
local function values_of(key, fields)
  local values = {}
  for first = 1, #fields, CHUNK do
    local some = call('HMGET', key, unpack(fields, first, math.min(first + CHUNK - 1, #fields)))
    for i = 1, #some do
      values[first + i - 1] = some[i]
    end
  end
  return values
end

-- The Kafka timestamp in an origin.
local function time_of(origin)
  return match(origin, ',(%-?%d+),[^,]*$')
end

-- The entry under a key, or nil.
local function read_at(key)
  local value = call('GET', key)
  if not value then
    return nil
  end
  local entry = { value = value }
  entry.state, entry.tier, entry.revision, entry.fingerprint, entry.origin, entry.first, entry.joined, entry.index,
    entry.answered = match(value, '^(%u) (%d) (%d+) (%S+) (%S+) (%S+) (%S+) (%S+) ?(%d*)\n')
  entry.revision = tonumber(entry.revision)
  if entry.answered == '' then
    entry.answered = nil
  end
  return entry
end

-- The entry of a subject, or nil.
local function read(digest)
  return read_at(prefix .. 's:' .. digest)
end

-- Stores the entry of a subject, whose lines behind the header are `rest`, and returns its text.
local function put(subject, entry, rest)
  local header = table.concat({
    entry.state, entry.tier, string.format('%d', entry.revision), subject.fingerprint, entry.origin, entry.first,
    entry.joined or '-', entry.index or '-', entry.answered,
  }, ' ')
  local value = header .. '\n' .. rest
  local key = prefix .. 's:' .. subject.digest
  if entry.state == 'A' or entry.state == 'P' or entry.state == 'W' then
    call('SET', key, value)
  else
    call('SET', key, value, 'EX', subject.lifetime or lifetime)
  end
  return value
end

local function write(subject, entry)
  return put(subject, entry, entry.facts .. '\n' .. entry.payload .. '\n' .. entry.record)
end

-- What others find of a claim, before its signature. Who is joined to a pending claim has to find its entry.
local function member_head(subject, class, time)
  local digest = class == 'P' and subject.digest or ''
  return class .. time .. ' ' .. subject.horizon .. ' ' .. digest .. ' ' .. subject.id .. '\0'
end

-- The ids under each of a claim's keys, false where there is none: as they were read when it was compared, if it was.
local function ids_under(subject, buckets, keys)
  local ids = {}
  for i = 1, #keys do
    ids[i] = subject.found and subject.found[keys[i]]
    if ids[i] == nil then
      return values_of(buckets, keys)
    end
  end
  return ids
end

-- Makes a claim findable in its scope; returns what its entry says of it. What a person rejected belongs to no entry:
-- it is found for longer than the entry is kept.
local function add_to_index(subject, class, time)
  local members, buckets = prefix .. 'm:' .. subject.scope, prefix .. 'k:' .. subject.scope
  local number = call('HINCRBY', members, 'n', 1)
  local id = struct.pack('<I4', number)
  call('HSET', members, id, member_head(subject, class, time) .. subject.signature)
  local keys = split(subject.stored, KEY)
  local ids = ids_under(subject, buckets, keys)
  local changed = {}
  for i = 1, #keys do
    changed[2 * i - 1], changed[2 * i] = keys[i], (ids[i] or '') .. id
  end
  for first = 1, #changed, CHUNK do
    call('HSET', buckets, unpack(changed, first, math.min(first + CHUNK - 1, #changed)))
  end
  return class ~= 'X' and subject.scope .. '/' .. string.format('%d', number) or nil
end

-- The hash and the local id under which others find the claim of an entry; nil where none does.
local function member_of(entry)
  local scope, number = match(entry.index, '^(.+)/(%d+)$')
  if scope then
    return prefix .. 'm:' .. scope, struct.pack('<I4', tonumber(number))
  end
end

local function leave_index(entry)
  local members, id = member_of(entry)
  if members then
    call('HDEL', members, id)
  end
end

-- Gives back what a waiting or pending subject holds.
local function leave_queue(subject, entry)
  if entry.state == 'W' then
    call('SREM', prefix .. 'w:' .. subject.user, subject.digest)
    count('waiting', -1)
  elseif entry.state == 'P' then
    count_place(subject, -1)
  end
end

-- Undoes what an entry holds beside itself, before another takes its place.
local function leave(subject, entry)
  leave_queue(subject, entry)
  leave_index(entry)
end

-- Notes an approved claim with all that it is derived from: a retraction asks who rests on what it takes back.
local function note_parents(subject)
  local parents = split(subject.parents, DIGEST)
  for i = 1, #parents do
    call('SADD', prefix .. 'd:' .. parents[i], subject.digest .. subject.id)
  end
end
