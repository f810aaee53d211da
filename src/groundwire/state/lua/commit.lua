-- Writes what was decided, request by request, where nothing that it was decided from has changed.
-- Sent after packed.lua. ARGV: letters of the requests, joined by commas, then a packed argument per request. Returns a
-- letter per request: 1 written, 0 lost to another writer or without a place.
local queue = prefix .. 'q'
local FIRST = 6
local KEY, ID = 4, 4 -- bytes
local POSTING = KEY + ID
local PAGE = 1024 * POSTING -- bytes of postings in one string, before they are split into buckets
local DEALT = '*'
local REJECTED = 1000 * ID -- bytes of ids of rejected texts that every claim of a scope is compared with

local counts, changed = {}, {} -- counters as the requests so far leave them

local function count_of(name)
  counts[name] = counts[name] or tonumber(call('HGET', queue, name) or 0)
  return counts[name]
end

-- Adds an id to the buckets of a large scope.
local function add_to_buckets(scope, ids_by_key, keys)
  local key = prefix .. 'b:' .. scope
  for i = 1, #keys do
    call('HSET', key, keys[i], (call('HGET', key, keys[i]) or '') .. ids_by_key[keys[i]])
  end
end

-- Indexes an id under its keys. In a small scope one string takes less time and space than a bucket per key.
local function post(scope, joined, id)
  if joined == '' then
    return
  end
  local name, keys = prefix .. 'k:' .. scope, split(joined, KEY)
  local added = table.concat(keys, id) .. id
  local length = call('APPEND', name, added)
  local before, ids = length - #added, {}
  if before == #DEALT then
    call('SET', name, DEALT)
    for i = 1, #keys do
      ids[keys[i]] = id
    end
    add_to_buckets(scope, ids, keys)
  elseif length > PAGE then -- one bucket per key from here on
    local postings, order = split(call('GET', name), POSTING), {}
    for i = 1, #postings do
      local key = sub(postings[i], 1, KEY)
      if not ids[key] then
        order[#order + 1] = key
      end
      ids[key] = (ids[key] or '') .. sub(postings[i], KEY + 1)
    end
    add_to_buckets(scope, ids, order)
    call('SET', name, DEALT)
  end
end

-- Removes ids of claims that left the index from a page, or from the buckets of these keys.
local function forget(scope, joined, gone)
  local is_gone, ids = {}, split(gone, ID)
  for i = 1, #ids do
    is_gone[ids[i]] = true
  end
  local name = prefix .. 'k:' .. scope
  local page = call('GET', name) or ''
  if page ~= DEALT then
    local kept, postings = {}, split(page, POSTING)
    for i = 1, #postings do
      if not is_gone[sub(postings[i], KEY + 1)] then
        kept[#kept + 1] = postings[i]
      end
    end
    call('SET', name, table.concat(kept))
    return
  end
  local keys = split(joined, KEY)
  for i = 1, #keys do
    local kept, found = {}, split(call('HGET', prefix .. 'b:' .. scope, keys[i]) or '', ID)
    for j = 1, #found do
      if not is_gone[found[j]] then
        kept[#kept + 1] = found[j]
      end
    end
    if #kept == 0 then
      call('HDEL', prefix .. 'b:' .. scope, keys[i])
    else
      call('HSET', prefix .. 'b:' .. scope, keys[i], table.concat(kept))
    end
  end
end

local CHECKS = {
  e = function(digest, expected) -- entry begins as expected; empty: there is none
    local key = prefix .. 's:' .. digest
    if expected == '' then
      return call('EXISTS', key) == 0
    end
    return call('GETRANGE', key, 0, #expected - 1) == expected
  end,
  n = function(scope, version) -- index of a scope
    return (call('HGET', prefix .. 'm:' .. scope, 'n') or '0') == version
  end,
  v = function(key, value) -- what is recorded of an action
    return (call('GET', prefix .. key) or '') == value
  end,
  k = function(key, size) -- number of members
    return call('SCARD', prefix .. key) == tonumber(size)
  end,
  C = function(name, by, most) -- a counter has room
    return most == '' or count_of(name) + by <= tonumber(most)
  end,
  f = function(name, least) -- a counter has no room
    return count_of(name) >= tonumber(least)
  end,
}

local WRITES = {
  C = function(name, by) -- a counter
    counts[name], changed[name] = math.max(count_of(name) + by, 0), true
  end,
  S = function(key, value, seconds) -- a key, for a time or for ever
    if seconds == '' then
      call('SET', prefix .. key, value)
    else
      call('SET', prefix .. key, value, 'EX', seconds)
    end
  end,
  D = function(key)
    call('DEL', prefix .. key)
  end,
  A = function(key, member)
    call('SADD', prefix .. key, member)
  end,
  R = function(key, member)
    call('SREM', prefix .. key, member)
  end,
  X = function(name, context) -- a prefix of payloads
    call('HSETNX', prefix .. 'c', name, context)
  end,
  M = function(scope, version, id, member) -- an indexed claim; empty: it leaves
    local key = prefix .. 'm:' .. scope
    if member == '' then
      call('HDEL', key, id)
      call('HSET', key, 'n', version)
    else
      call('HSET', key, id, member, 'n', version)
    end
  end,
  P = post, -- the keys of an indexed claim
  J = function(scope, id) -- a rejected text; the latest are kept
    local key = prefix .. 'x:' .. scope
    local length = call('APPEND', key, id)
    if length > REJECTED then
      call('SET', key, call('GETRANGE', key, length - REJECTED, -1))
    end
  end,
  G = forget, -- keys of claims that left
}
local FIELDS = { e = 2, n = 2, v = 2, k = 2, f = 2, C = 3, S = 3, D = 1, A = 2, R = 2, X = 2, M = 4, P = 3, J = 2, G = 3 }

local plans = {} -- format of the lengths, and checks and writes with the places of their fields, by letters

local function plan_of(letters)
  local plan, at = { checks = {}, writes = {} }, 1
  for letter in string.gmatch(letters, '%a') do
    if CHECKS[letter] then
      plan.checks[#plan.checks + 1] = { CHECKS[letter], at }
    end
    if WRITES[letter] then
      plan.writes[#plan.writes + 1] = { WRITES[letter], at }
    end
    at = at + FIELDS[letter]
  end
  plan.format = '<' .. string.rep('I4', at - 1)
  plans[letters] = plan
  return plan
end

local function commit(letters, packed)
  local plan = plans[letters] or plan_of(letters)
  local fields = fields_of(plan.format, packed)
  for i = 1, #plan.checks do
    local check, at = plan.checks[i][1], plan.checks[i][2]
    if not check(fields[at], fields[at + 1], fields[at + 2]) then
      return '0'
    end
  end
  for i = 1, #plan.writes do
    local write, at = plan.writes[i][1], plan.writes[i][2]
    write(fields[at], fields[at + 1], fields[at + 2], fields[at + 3])
  end
  return '1'
end

-- What follows a request that is lost was decided from its writes.
local answers, at = {}, FIRST
for letters in string.gmatch(ARGV[5] .. ',', '(%a*),') do
  answers[#answers + 1] = answers[#answers] == '0' and '0' or commit(letters, ARGV[at])
  at = at + 1
end
for name in pairs(changed) do
  if counts[name] > 0 then
    call('HSET', queue, name, counts[name])
  else
    call('HDEL', queue, name)
  end
end
return table.concat(answers)
