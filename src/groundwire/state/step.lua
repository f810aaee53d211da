-- One step: decides a batch of claims in order, atomically. `groundwire.state.model` says what is decided,
-- `groundwire.state.memory` is the same in Python, and tests hold the two together.
-- ARGV: prefix, lifetime, epoch, deferred, places per user, per tenant, in all, candidates per claim, and
-- then ASKED arguments for each claim. Answers one string per claim, or 'LOST'.
local ASKED, FIRST = 14, 9
local MATCHES = 5 -- near-duplicates that are reported
local BYTES = 400 -- of signatures to compare, per candidate allowed

local deferred = ARGV[4] == '1'
local per_user, per_tenant, in_all = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
local candidates_allowed = tonumber(ARGV[8])

if call('GET', prefix .. 'epoch') ~= ARGV[3] then
  return 'LOST'
end

local function ask_at(at)
  local ask = {
    digest = ARGV[at], user = ARGV[at + 1], tenant = ARGV[at + 2], id = ARGV[at + 3], fingerprint = ARGV[at + 4],
    origin = ARGV[at + 5], scope = ARGV[at + 7], stored = ARGV[at + 8], probed = ARGV[at + 9],
    signature = ARGV[at + 10], parents = ARGV[at + 11], payload = ARGV[at + 12], record = ARGV[at + 13],
  }
  local base, capped, wait, status, material, parts, horizon =
    match(ARGV[at + 6], '^(%d) (%d) (%d) (%a) (%d) (%d+) (%-?%d+)$')
  ask.base, ask.capped, ask.wait, ask.status = tonumber(base), capped == '1', wait == '1', status
  ask.material, ask.parts, ask.horizon = material == '1', tonumber(parts), horizon
  return ask
end

local function time_of(origin)
  return match(origin, ',(%-?%d+),[^,]*$')
end

-- Ids of the claims that share a key, each once; nil where there are too many.
local function candidates_of(ask)
  local buckets = values_of(prefix .. 'k:' .. ask.scope, split(ask.probed, KEY))
  local ids, seen = {}, {}
  for i = 1, #buckets do
    local bucket = buckets[i]
    for at = 1, bucket and #bucket or 0, LOCAL_ID do
      local id = sub(bucket, at, at + LOCAL_ID - 1)
      if not seen[id] then
        if #ids == candidates_allowed then
          return nil
        end
        seen[id] = true
        ids[#ids + 1] = id
      end
    end
  end
  return ids
end

-- Takes ids that no longer stand for a claim out of the buckets in which they were found.
local function forget(ask, gone)
  local key = prefix .. 'k:' .. ask.scope
  local fields = split(ask.probed, KEY)
  local buckets = values_of(key, fields)
  for i = 1, #fields do
    local kept = {}
    local ids = split(buckets[i] or '', LOCAL_ID)
    for j = 1, #ids do
      if not gone[ids[j]] then
        kept[#kept + 1] = ids[j]
      end
    end
    if #kept == 0 then
      call('HDEL', key, fields[i])
    elseif #kept < #ids then
      call('HSET', key, fields[i], table.concat(kept))
    end
  end
end

-- The token ids of a signature as a set, and how many they are.
local function token_set(text, from)
  local set, size = {}, 0
  for at = from + HEADER, #text, TOKEN do
    local id = sub(text, at, at + TOKEN - 1)
    if not set[id] then
      set[id] = true
      size = size + 1
    end
  end
  return set, size
end

-- Intersection and union with the tokens of a stored signature, or nil where they are not near.
local function overlap(own, size, text, from, parts)
  local inter, union, seen = 0, size, {}
  for at = from + HEADER, #text, TOKEN do
    local id = sub(text, at, at + TOKEN - 1)
    if not seen[id] then
      seen[id] = true
      if own[id] then
        inter = inter + 1
      else
        union = union + 1
        if 10000 * size < parts * union then
          return nil -- however many of the others are shared
        end
      end
    end
  end
  if union > 0 and 10000 * inter >= parts * union then
    return inter, union
  end
end

-- The tokens of a signature that both claims have, articles left out, in text order.
local function shared_words(text, from, own, other)
  local words = {}
  for at = from + HEADER, #text, TOKEN do
    local id = sub(text, at, at + TOKEN - 1)
    if own[id] and other[id] and string.byte(id) % 2 == 0 then
      words[#words + 1] = id
    end
  end
  return table.concat(words)
end

-- As groundwire.checks.difference.
local function difference(own, signature, text, from)
  local kinds = { 'negation', 'number', 'unit' }
  for i = 1, 3 do
    if sub(signature, 4 * i - 3, 4 * i) ~= sub(text, from + 4 * i - 4, from + 4 * i - 1) then
      return kinds[i]
    end
  end
  local other = token_set(text, from)
  if shared_words(signature, 1, own, other) ~= shared_words(text, from, own, other) then
    return 'order'
  end
  return 'none'
end

-- Adds the claim behind a member of the scope to the matches if it is near.
local function compare(ask, own, size, id, member, matches)
  local class, time, horizon, digest, name, from = match(member, '^(%u)(%-?%d+) (%-?%d+) (%S*) ([^%z]*)%z()')
  horizon = tonumber(horizon)
  if name == ask.id and class ~= 'X' then
    return -- a claim is not its own duplicate; a person's rejection of it outlives its entry
  end
  if class == 'A' and horizon ~= 0 and horizon <= ask.clock then
    return -- what no longer holds is no duplicate
  end
  local inter, union = overlap(own, size, member, from, ask.parts)
  if inter then
    matches[#matches + 1] = {
      id = name, inter = inter, union = union, class = class, digest = digest, time = tonumber(time),
      number = struct.unpack('<I4', id), difference = difference(own, ask.signature, member, from),
    }
  end
end

-- All near-duplicates in the scope; nil where there is too much to compare.
local function matches_of(ask)
  local ids = candidates_of(ask)
  if not ids then
    return nil
  end
  local matches, gone, stale, bytes = {}, {}, false, 0
  local own, size
  if #ids > 0 then
    own, size = token_set(ask.signature, 1)
  end
  for first = 1, #ids, 100 do
    local some = {}
    for i = first, math.min(first + 99, #ids) do
      some[#some + 1] = ids[i]
    end
    local members = call('HMGET', prefix .. 'm:' .. ask.scope, unpack(some))
    for i = 1, #some do
      if members[i] then
        bytes = bytes + #members[i] - find(members[i], '\0', 1, true)
        if bytes > BYTES * candidates_allowed then
          return nil
        end
        compare(ask, own, size, some[i], members[i], matches)
      else
        gone[some[i]] = true
        stale = true
      end
    end
  end
  if stale then
    forget(ask, gone)
  end
  return matches
end

-- Higher similarity first, then the earlier, then by id.
local function nearer(a, b)
  local left, right = a.inter * b.union, b.inter * a.union
  if left ~= right then
    return left > right
  elseif a.time ~= b.time then
    return a.time < b.time
  elseif a.id ~= b.id then
    return a.id < b.id
  end
  return a.number < b.number
end

-- What a match decides, or nil.
local function kind_of(match, material)
  local plain = match.difference == 'none' or not material
  if match.class == 'X' then
    return 'rejected'
  elseif match.class == 'A' then
    return plain and 'duplicate' or 'conflict'
  end
  return plain and 'pending' or nil
end

-- The matches to report, nearest first: the best of each kind that decides, and the nearest of the others.
-- Second, those that decide, by kind.
local function choose(matches, material)
  table.sort(matches, nearer)
  local best, chosen, left = {}, {}, MATCHES
  for i = 1, #matches do
    local kind = kind_of(matches[i], material)
    if kind and not best[kind] then
      best[kind], chosen[i], left = matches[i], true, left - 1
    end
  end
  local kept = {}
  for i = 1, #matches do
    if not chosen[i] and left > 0 then
      chosen[i], left = true, left - 1
    end
    if chosen[i] then
      kept[#kept + 1] = matches[i]
    end
  end
  return kept, best
end

-- One letter per parent; U: unknown.
local function states_of(parents)
  local digests = split(parents, DIGEST)
  local states = {}
  for i = 1, #digests do
    local state = call('GETRANGE', prefix .. 's:' .. digests[i], 0, 0)
    states[i] = state == '' and 'U' or state
  end
  return table.concat(states)
end

-- The line of facts that groundwire.state.entries reads.
local function facts_line(status, place, parents, kept)
  local facts = status .. place
  if parents ~= '' or #kept > 0 then
    facts = facts .. ' ' .. (parents ~= '' and parents or '-')
  end
  local lines = {}
  for i = 1, #kept do
    local m = kept[i]
    lines[i] = string.format('[%s,%d,%d,"%s","%s"]', cjson.encode(m.id), m.inter, m.union, m.difference, m.class)
  end
  return #lines > 0 and facts .. ' [' .. table.concat(lines, ',') .. ']' or facts
end

local function tier_of(ask, status, best, parents)
  if ask.base == 3 or best.duplicate then
    return 3
  end
  local doubtful = ask.capped or status == 'f' or best.conflict or best.rejected or find(parents, '[^A]')
  return ask.base == 1 and doubtful and 2 or ask.base
end

-- n: none needed, f: free, u, t, a: the places of the user, of the tenant, all places are taken.
local function ask_for_place(ask)
  local taken = call('HMGET', queue, 'u:' .. ask.user, 't:' .. ask.tenant, 'total')
  if tonumber(taken[1] or 0) >= per_user then
    return 'u'
  elseif tonumber(taken[2] or 0) >= per_tenant then
    return 't'
  elseif tonumber(taken[3] or 0) >= in_all then
    return 'a'
  end
  return 'f'
end

-- State and place that a tier brings.
local function settle(ask, tier, best)
  if tier == 1 then
    return 'A', 'n'
  elseif tier == 3 then
    return 'B', 'n'
  elseif best.pending then
    return 'J', 'n'
  end
  local place = ask_for_place(ask)
  return place == 'f' and 'P' or 'R', place
end

local function decide(ask, before)
  local status, kept, best = ask.status, {}, {}
  if status == 'o' then
    local matches = matches_of(ask)
    if matches then
      kept, best = choose(matches, ask.material)
    else
      status = 'f'
    end
  end
  local parents = states_of(ask.parents)
  local tier = tier_of(ask, status, best, parents)
  local state, place = settle(ask, tier, best)
  local again = before and before.revision >= 1
  local entry = {
    state = state, tier = tier, revision = again and before.revision + 1 or 1, origin = ask.origin,
    first = again and (before.first ~= '-' and before.first or before.origin) or '-',
    joined = state == 'J' and best.pending.digest or nil, facts = facts_line(status, place, parents, kept),
    payload = ask.payload, record = state == 'P' and ask.record or '',
  }
  if before then
    leave(ask, before)
  end
  if state == 'P' then
    count_place(ask, 1)
  end
  if status == 'o' and (state == 'A' or state == 'P') then
    entry.index = add_to_index(ask, state, ask.time)
  end
  return '+' .. write(ask, entry)
end

local function wait(ask, before)
  local again = before and before.revision >= 1
  call('SADD', prefix .. 'w:' .. ask.user, ask.digest)
  count('waiting', 1)
  write(ask, {
    state = 'W', tier = 0, revision = again and before.revision or 0, origin = ask.origin,
    first = again and (before.first ~= '-' and before.first or before.origin) or '-', facts = '', payload = '',
    record = '',
  })
  return 'W'
end

-- Whether a recorded outcome gives way to a new one.
local function may_be_decided_again(ask, before)
  if ask.origin == before.origin or ask.clock <= tonumber(time_of(before.origin)) then
    return false
  elseif before.state == 'J' then
    return call('GETRANGE', prefix .. 's:' .. before.joined, 0, 0) ~= 'P'
  end
  return before.state == 'R'
end

local function answer(ask)
  local before = read(ask.digest)
  if before and before.fingerprint ~= ask.fingerprint then
    return '!'
  elseif before and before.state == 'W' then
    if deferred then
      return decide(ask, before)
    end
    return before.origin == ask.origin and 'W' or 'w'
  elseif before and not may_be_decided_again(ask, before) then
    return '=' .. before.value
  elseif not deferred and (ask.wait or call('SCARD', prefix .. 'w:' .. ask.user) > 0) then
    return wait(ask, before)
  end
  return decide(ask, before)
end

local answers = {}
for at = FIRST, #ARGV, ASKED do
  local ask = ask_at(at)
  ask.time = time_of(ask.origin)
  ask.clock = tonumber(ask.time)
  answers[#answers + 1] = answer(ask)
end
return answers
