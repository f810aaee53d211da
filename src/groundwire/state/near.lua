-- Near-duplicates of a claim: found by keys, compared exactly, and chosen from. Stands between entries.lua and
-- step.lua or review.lua; `groundwire.state.matching` is the same in Python.
local MATCHES = 5 -- near-duplicates that are reported
local BYTES = 400 -- of signatures to compare, per candidate allowed

-- Ids of the claims that share a key, each once; nil where there are too many. What was found is kept with the ask.
local function candidates_of(ask, allowed)
  local keys = split(ask.probed, KEY)
  local buckets = ids_under(ask, keys)
  local ids, seen = {}, {}
  for i = 1, #keys do
    local bucket = buckets[i]
    for at = 1, bucket and #bucket or 0, LOCAL_ID do
      local id = sub(bucket, at, at + LOCAL_ID - 1)
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

local function forget_in_buckets(ask, gone)
  local key = prefix .. 'b:' .. ask.scope
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

local function forget_in_page(ask, gone)
  local kept = {}
  local postings = split(ask.page, POSTING)
  for i = 1, #postings do
    if not gone[sub(postings[i], KEY + 1)] then
      kept[#kept + 1] = postings[i]
    end
  end
  call('SET', prefix .. 'k:' .. ask.scope, table.concat(kept))
end

-- Takes ids that no longer stand for a claim away from where they were found.
local function forget(ask, gone)
  if ask.page == DEALT then
    forget_in_buckets(ask, gone)
  else
    forget_in_page(ask, gone)
  end
  ask.page, ask.found = nil, nil
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

-- Adds the claim behind a member of the scope to the matches if it is near; its signature starts at `from`.
local function compare(ask, own, size, id, member, from, matches)
  local inter, union = overlap(own, size, member, from, ask.parts)
  if not inter then
    return
  end
  local class, time, horizon, digest, name = match(member, '^(%u)(%-?%d+) (%-?%d+) (%S*) ([^%z]*)%z')
  horizon = tonumber(horizon)
  if name == ask.id and class ~= 'X' then
    return -- a claim is not its own duplicate; a person's rejection of it outlives its entry
  end
  if class == 'A' and horizon ~= 0 and horizon <= ask.clock then
    return -- what no longer holds is no duplicate
  end
  matches[#matches + 1] = {
    id = name, inter = inter, union = union, class = class, digest = digest, time = tonumber(time),
    number = struct.unpack('<I4', id), difference = difference(own, ask.signature, member, from),
  }
end

local compared = 0 -- claims, in this call

-- All near-duplicates in the scope; nil where there is too much to compare.
local function matches_of(ask, allowed)
  local ids = candidates_of(ask, allowed)
  compared = compared + (ids and #ids or allowed)
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
        local from = find(members[i], '\0', 1, true) + 1
        bytes = bytes + #members[i] - from + 1
        if bytes > BYTES * allowed then
          return nil
        end
        compare(ask, own, size, some[i], members[i], from, matches)
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

-- Whether a text is before another by its bytes: how Lua compares them depends on the server's locale.
local function comes_before(a, b)
  for at = 1, math.min(#a, #b) do
    local left, right = string.byte(a, at), string.byte(b, at)
    if left ~= right then
      return left < right
    end
  end
  return #a < #b
end

-- Higher similarity first, then the earlier, then by id.
local function nearer(a, b)
  local left, right = a.inter * b.union, b.inter * a.union
  if left ~= right then
    return left > right
  elseif a.time ~= b.time then
    return a.time < b.time
  elseif a.id ~= b.id then
    return comes_before(a.id, b.id)
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

-- What comparing a claim gives: the status of it (o: done, f: there is too much to compare, or what was asked),
-- the matches to report, and those that decide, by kind.
local function compare_with_index(ask, allowed)
  if ask.status ~= 'o' then
    return ask.status, {}, {}
  end
  local matches = matches_of(ask, allowed)
  if not matches then
    return 'f', {}, {}
  end
  return 'o', choose(matches, ask.material)
end
