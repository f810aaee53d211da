-- Reads what the life cycle needs of a batch, in one atomic call; groundwire.state.lifecycle has the rules.
-- Sent after packed.lua. ARGV: candidates per claim, names of counters and of users as JSON, then a packed argument per
-- request. Returns four strings, as the client is slow at arrays: per request the lengths of eleven fields and the
-- fields; per candidate its length, scope, id and value; values of the counters; numbers of waiting subjects of the
-- users, these two joined by commas. Fewer requests are answered once enough is read or to be compared.
local find, match = string.find, string.match
local allowed = tonumber(ARGV[5])
local FIRST = 8
local DIGEST, KEY, ID = 22, 4, 4 -- bytes
local POSTING = KEY + ID
local DEALT = '*' -- a page that was split into buckets
local LENGTHS = '<' .. string.rep('I4', 11)
local FORMAT = '<' .. string.rep('I4', 7)
local HEAD = 24 -- bytes of an entry that tell its state and revision
local ENOUGH = 1000000 -- bytes of candidates
local CHUNK = 20
local PAGE = 1000 -- names of one HMGET

-- As HMGET, however many names there are.
local function hmget(key, names)
  local found = {}
  for first = 1, #names, PAGE do
    local some = call('HMGET', key, unpack(names, first, math.min(first + PAGE - 1, #names)))
    for i = 1, #some do
      found[#found + 1] = some[i]
    end
  end
  return found
end

local scopes, candidates, bytes, compared = {}, {}, 0, 0

local function scope_of(name)
  local scope = scopes[name]
  if not scope then
    local found = call('MGET', prefix .. 'k:' .. name, prefix .. 'x:' .. name)
    scope = {
      page = found[1] or '', rejected = found[2] or '', sent = {},
      version = call('HGET', prefix .. 'm:' .. name, 'n') or '0',
    }
    scopes[name] = scope
  end
  return scope
end

-- The ids in a page under a key.
local function ids_in(page, key)
  local ids, at = '', find(page, key, 1, true)
  while at do
    if at % POSTING == 1 then -- else it spans two postings
      ids = ids .. sub(page, at + KEY, at + POSTING - 1)
    end
    at = find(page, key, at + 1, true)
  end
  return ids
end

-- Ids of claims that share a key, and of rejected texts of the scope; nil if there are too many.
local function candidates_of(name, scope, probed)
  local keys, ids, seen = split(probed, KEY), {}, {}
  local buckets = scope.page == DEALT and #keys > 0 and hmget(prefix .. 'b:' .. name, keys)
  for i = 1, #keys + 1 do
    local found = scope.rejected
    if i <= #keys then
      found = buckets and buckets[i] or not buckets and ids_in(scope.page, keys[i]) or ''
    end
    for at = 1, #found, ID do
      local id = sub(found, at, at + ID - 1)
      if not seen[id] then
        if #ids == allowed then
          return nil
        end
        seen[id] = true
        ids[#ids + 1] = id
      end
    end
  end
  return ids
end

-- Adds candidates to the answer, each once, as long as there is room.
local function send(name, scope, ids)
  local missing = {}
  for i = 1, #ids do
    if not scope.sent[ids[i]] then
      missing[#missing + 1] = ids[i]
    end
  end
  for first = 1, #missing, CHUNK do
    if bytes >= ENOUGH then
      return
    end
    local some = { unpack(missing, first, math.min(first + CHUNK - 1, #missing)) }
    local found = hmget(prefix .. 'm:' .. name, some)
    for i = 1, #some do
      scope.sent[some[i]] = true
      local value = found[i] or ''
      candidates[#candidates + 1] = struct.pack('<I4', #value) .. name .. some[i] .. value
      bytes = bytes + #value
    end
  end
end

local function heads_of(joined)
  local heads, digests = {}, split(joined, DIGEST)
  for i = 1, #digests do
    heads[i] = call('GETRANGE', prefix .. 's:' .. digests[i], 0, HEAD)
  end
  return table.concat(heads, '\n')
end

-- Approved claims derived from a subject, of at most `allowed` that were once.
local function children_of(digest)
  local approved, seen, count, cursor = {}, {}, 0, '0'
  repeat
    local page = call('SSCAN', prefix .. 'd:' .. digest, cursor, 'COUNT', allowed)
    cursor = page[1]
    for i = 1, #page[2] do
      local child = page[2][i]
      if count < allowed and not seen[child] then
        seen[child], count, compared = true, count + 1, compared + 1
        if call('GETRANGE', prefix .. 's:' .. sub(child, 1, DIGEST), 0, 0) == 'A' then
          approved[#approved + 1] = child
        end
      end
    end
  until cursor == '0' or count >= allowed
  return table.concat(approved, '\0')
end

-- Entry, its outcome for an earlier record, head of the claim that it joined, heads of the parents; version of the scope
-- and ids of candidates, `!` for too many; version of the scope that indexes the entry; then, of an action, what is
-- recorded of it, the approval before a retraction, and number and names of derived claims.
local function read(packed)
  local digest, record, parents, scope_name, probed, action, children = unpack(fields_of(FORMAT, packed))
  local entry = call('GET', prefix .. 's:' .. digest) or ''
  local superseded, leader, indexed = '', '', ''
  if entry ~= '' then
    local place, joined = match(entry, '^%u %d %d+ %S+ (%S+),[^, ]* %S+ (%S+)')
    if record ~= '' and place ~= record then
      superseded = call('GET', prefix .. 'r:' .. digest .. ',' .. record) or ''
    end
    if joined ~= '-' then
      leader = call('GETRANGE', prefix .. 's:' .. joined, 0, HEAD)
    end
    local name, number = match(entry, '^%u %d %d+ %S+ %S+ %S+ %S+ (%S+)/(%d+)')
    if name then
      local scope = scope_of(name)
      indexed = scope.version
      if action ~= '' then
        send(name, scope, { struct.pack('<I4', tonumber(number)) })
      end
    end
  end
  local heads, version, found = heads_of(parents), '', ''
  local recorded = record ~= '' and entry ~= '' and not find('WRJ', sub(entry, 1, 1), 1, true)
  if scope_name ~= '' and not recorded then
    local scope = scope_of(scope_name)
    version = scope.version
    if record ~= '' or action ~= '' then -- what is loaded is compared with nothing
      local ids = candidates_of(scope_name, scope, probed)
      found = ids and table.concat(ids) or '!'
      if ids then
        send(scope_name, scope, ids)
        compared = compared + #ids
      end
    end
  end
  local done, approval, count, approved = '', '', '', ''
  if action ~= '' then
    done = call('GET', prefix .. 'a:' .. action) or ''
    approval = call('GET', prefix .. 'o:' .. digest) or ''
    count = tostring(call('SCARD', prefix .. 'd:' .. digest))
    approved = children == '1' and children_of(digest) or ''
  end
  return struct.pack(
    LENGTHS, #entry, #superseded, #leader, #heads, #version, #found, #indexed, #done, #approval, #count, #approved
  ) .. entry .. superseded .. leader .. heads .. version .. found .. indexed .. done .. approval .. count .. approved
end

local requests = {}
for at = FIRST, #ARGV do
  requests[#requests + 1] = read(ARGV[at])
  if bytes + compared * ID >= ENOUGH or compared >= allowed then
    break
  end
end
local names, users, waiting = cjson.decode(ARGV[6]), cjson.decode(ARGV[7]), {}
local counters = hmget(prefix .. 'q', names)
if #users > 0 and tonumber(call('HGET', prefix .. 'q', 'waiting') or 0) > 0 then
  for i = 1, #users do
    waiting[i] = call('SCARD', prefix .. 'w:' .. users[i])
  end
end
for i = 1, #names do
  counters[i] = counters[i] or ''
end
return {
  table.concat(requests), table.concat(candidates), table.concat(counters, ','), table.concat(waiting, ','),
}
