-- Shared by step.lua, review.lua and load.lua; docs/run/state.md describes the keys.
-- ARGV[1] is the deployment's prefix, ARGV[2] the lifetime in seconds of outcomes without a place in index or queue.
local call, sub, match, find = redis.call, string.sub, string.match, string.find
local prefix, lifetime = ARGV[1], ARGV[2]
local queue = prefix .. 'q'
local DIGEST = 22 -- characters of 16 bytes in base64
local KEY, LOCAL_ID = 4, 4 -- bytes
local POSTING = KEY + LOCAL_ID
local PAGE = 1024 * POSTING -- bytes of postings in one string, before they are split into buckets
local DEALT = '*' -- replaces a split page
local REJECTED = 1000 * LOCAL_ID -- bytes of ids of rejected texts that every claim of a scope is compared with
local CHUNK = 1000 -- arguments of one call: unpack has a limit

local function split(joined, size)
  local parts = {}
  for at = 1, #joined, size do
    parts[#parts + 1] = sub(joined, at, at + size - 1)
  end
  return parts
end

-- Unpacks fields joined by `pack` of groundwire.state.codec.
local function fields_of(packed, names)
  local parts = { struct.unpack('<' .. string.rep('I4c0', #names), packed) }
  local fields = {}
  for i = 1, #names do
    fields[names[i]] = parts[i]
  end
  return fields
end

local counters, counted, changes = {}, {}, {} -- `changes`: of the current argument
local WIDE = '%065d' -- a value over 64 bytes makes Redis use a hash table instead of a list

-- Counters are read once, and stored at the end.
local function counter(field)
  local value = counters[field]
  if not value then
    value = tonumber(call('HGET', queue, field) or 0)
    counters[field] = value
  end
  return value
end

local function count(field, by)
  counters[field] = counter(field) + by
  counted[field] = true
  changes[#changes + 1], changes[#changes + 2] = field, by
end

-- Counters at zero are deleted.
local function store_counters()
  local values, gone = {}, {}
  for field in pairs(counted) do
    if counters[field] > 0 then
      values[#values + 1] = field
      values[#values + 1] = string.format(field == 'total' and WIDE or '%d', counters[field])
    else
      gone[#gone + 1] = field
    end
  end
  for first = 1, #values, CHUNK do
    call('HSET', queue, unpack(values, first, math.min(first + CHUNK - 1, #values)))
  end
  for first = 1, #gone, CHUNK do
    call('HDEL', queue, unpack(gone, first, math.min(first + CHUNK - 1, #gone)))
  end
end

-- Processes arguments until `work` returns true, and stores the counters. After an error, writes for earlier arguments
-- stay, and so do their counts.
local function for_each(first, work)
  for at = first, #ARGV do
    changes = {}
    local done, result = pcall(work, ARGV[at])
    if not done then
      for i = 1, #changes, 2 do
        counters[changes[i]] = counters[changes[i]] - changes[i + 1]
      end
      store_counters()
      return redis.error_reply(result)
    elseif result then
      break
    end
  end
  store_counters()
end

local function count_place(subject, by, bytes)
  count('total', by)
  count('t:' .. subject.tenant, by)
  count('u:' .. subject.user, by)
  if bytes > 0 then
    count('b:' .. subject.tenant, by * bytes)
  end
end

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

local function time_of(origin)
  return match(origin, ',(%-?%d+),[^,]*$')
end

local function entry_from(value)
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

local function read(digest)
  return entry_from(call('GET', prefix .. 's:' .. digest))
end

-- Stores an entry with the lines after its header; returns its text.
local function put(subject, entry, rest)
  local value = entry.state .. ' ' .. entry.tier .. ' ' .. string.format('%d', entry.revision) .. ' '
    .. subject.fingerprint .. ' ' .. entry.origin .. ' ' .. entry.first .. ' ' .. (entry.joined or '-') .. ' '
    .. (entry.index or '-') .. (entry.answered and ' ' .. entry.answered or '') .. '\n' .. rest
  local key = prefix .. 's:' .. subject.digest
  if entry.state == 'A' or entry.state == 'P' or entry.state == 'W' then
    call('SET', key, value)
  else
    call('SET', key, value, 'EX', subject.lifetime or lifetime)
  end
  return value
end

local names, contexts = {}, {} -- prefixes of payloads up to a tab, stored once
local HALVES = '^([^\t]*)(\t.*)$'

local function shorten(line)
  local context, own = match(line, HALVES)
  if not context then
    return line
  end
  if not names[context] then
    names[context] = sub(redis.sha1hex(context), 1, 12)
    call('HSETNX', prefix .. 'c', names[context], context)
  end
  return names[context] .. own
end

local function line_in_full(line)
  local name, own = match(line, HALVES)
  if not name then
    return line
  end
  contexts[name] = contexts[name] or call('HGET', prefix .. 'c', name) or error('no context ' .. name)
  return contexts[name] .. own
end

-- The text of an entry with its whole payload.
local function in_full(value)
  local before, line, behind = match(value, '^([^\n]*\n[^\n]*\n)([^\n]*)(.*)$')
  return before .. line_in_full(line) .. behind
end

local function write(subject, entry)
  return put(subject, entry, entry.facts .. '\n' .. shorten(entry.payload) .. '\n' .. entry.record)
end

-- The indexed facts of a claim, before its signature; joined claims need the digest of a pending one.
local function member_head(subject, class, time)
  local digest = class == 'P' and subject.digest or ''
  return class .. time .. ' ' .. subject.horizon .. ' ' .. digest .. ' ' .. subject.id .. '\0'
end

local function ids_in(page, key)
  local ids = false
  local at = find(page, key, 1, true)
  while at do
    if at % POSTING == 1 then -- else it spans two postings
      local id = sub(page, at + KEY, at + POSTING - 1)
      ids = ids and ids .. id or id
    end
    at = find(page, key, at + 1, true)
  end
  return ids
end

local function page_of(subject)
  subject.page = subject.page or call('GET', prefix .. 'k:' .. subject.scope) or ''
  return subject.page
end

-- The ids under keys of a scope, or false; cached in the subject.
local function ids_under(subject, keys)
  local page, ids = page_of(subject), {}
  if page == DEALT then
    ids = values_of(prefix .. 'b:' .. subject.scope, keys)
    subject.found = {}
    for i = 1, #keys do
      subject.found[keys[i]] = ids[i]
    end
  elseif page ~= '' then
    for i = 1, #keys do
      ids[i] = ids_in(page, keys[i])
    end
  end
  return ids
end

-- The same, from the cache if the claim was compared.
local function ids_again(subject, keys)
  local ids = {}
  for i = 1, #keys do
    ids[i] = subject.found and subject.found[keys[i]]
    if ids[i] == nil then
      return ids_under(subject, keys)
    end
  end
  return ids
end

-- Adds an id to the buckets of a large scope; `ids`: those in them.
local function add_to_buckets(scope, keys, ids, id)
  local changed = {}
  for i = 1, #keys do
    changed[2 * i - 1], changed[2 * i] = keys[i], (ids[i] or '') .. id
  end
  for first = 1, #changed, CHUNK do
    call('HSET', prefix .. 'b:' .. scope, unpack(changed, first, math.min(first + CHUNK - 1, #changed)))
  end
end

-- Splits a full page into buckets, one per key.
local function deal(scope, page)
  local keys, ids, places = {}, {}, {}
  for at = 1, #page, POSTING do
    local key = sub(page, at, at + KEY - 1)
    local place = places[key] or #keys + 1
    keys[place], places[key] = key, place
    ids[place] = (ids[place] or '') .. sub(page, at + KEY, at + POSTING - 1)
  end
  add_to_buckets(scope, keys, ids, '')
  call('SET', prefix .. 'k:' .. scope, DEALT)
end

-- Indexes an id under its keys. In a small scope one string takes less time and space than a bucket per key.
local function post(subject, id)
  local keys = split(subject.stored, KEY)
  local page = page_of(subject)
  if page == DEALT then
    add_to_buckets(subject.scope, keys, ids_again(subject, keys), id)
  elseif #keys > 0 then
    local postings = table.concat(keys, id) .. id
    if #page + #postings > PAGE then
      deal(subject.scope, page .. postings)
    else
      call('APPEND', prefix .. 'k:' .. subject.scope, postings)
    end
  end
end

-- Adds a rejected text to those that every claim of the scope is compared with, keeping the latest.
local function note_rejected(scope, id)
  local key = prefix .. 'x:' .. scope
  local length = call('APPEND', key, id)
  if length > REJECTED then
    call('SET', key, call('GETRANGE', key, length - REJECTED, -1))
  end
end

-- Indexes a claim; returns its place for the entry. A rejected text belongs to no entry: it outlives it.
local function add_to_index(subject, class, time)
  local members = prefix .. 'm:' .. subject.scope
  local number = call('HINCRBY', members, 'n', 1)
  local id = struct.pack('<I4', number)
  call('HSET', members, id, member_head(subject, class, time) .. subject.signature)
  post(subject, id)
  if class == 'X' then
    note_rejected(subject.scope, id)
  end
  return class ~= 'X' and subject.scope .. '/' .. string.format('%d', number) or nil
end

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

local function leave_queue(subject, entry)
  if entry.state == 'W' then
    call('SREM', prefix .. 'w:' .. subject.user, subject.digest)
    count('waiting', -1)
  elseif entry.state == 'P' then
    local _, before_record = find(entry.value, '^[^\n]*\n[^\n]*\n[^\n]*\n')
    count_place(subject, -1, #entry.value - before_record)
  end
end

local function leave(subject, entry)
  leave_queue(subject, entry)
  leave_index(entry)
end

-- Records an approved claim with its parents: a retraction reports the claims derived from its subject.
local function note_parents(subject)
  local parents = split(subject.parents, DIGEST)
  for i = 1, #parents do
    call('SADD', prefix .. 'd:' .. parents[i], subject.digest .. subject.id)
  end
end
