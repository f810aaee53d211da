-- Near-duplicates and conflicts: found by keys, compared exactly, ranked. Sent after entries.lua;
-- `groundwire.state.matching` is the same in Python.
local MATCHES = 5 -- near-duplicates that are reported
local BYTES = 400 -- of signatures to compare, per candidate allowed

-- Ids of claims that share a key, and of rejected texts of the scope; nil if there are too many.
local function candidates_of(ask, allowed)
  local keys = split(ask.probed, KEY)
  local buckets = ids_under(ask, keys)
  buckets[#keys + 1] = ask.rejected_ids or call('GET', prefix .. 'x:' .. ask.scope)
  local ids, seen = {}, {}
  for i = 1, #keys + 1 do
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

-- Removes ids of claims that left the index.
local function forget(ask, gone)
  if ask.page == DEALT then
    forget_in_buckets(ask, gone)
  else
    forget_in_page(ask, gone)
  end
  ask.page, ask.found = nil, nil
end

-- Signatures, as in groundwire.checks.dedup.signature.
local HEADER, VALUE, TOKEN = 18, 5, 9 -- bytes
local TOPIC, FILLER = 128, 64
local NO_FRAME = '\0\0\0\0'
local WORD, STEM = { 5, 8 }, { 1, 4 } -- positions in a token, after its marks
local KINDS = { 'N', 'Q', 'U', 'Y', 'M', 'D', 'W', 'O', 'A' }
local NAMES = { N = 'number', Q = 'number', U = 'unit', Y = 'date', M = 'date', D = 'date', W = 'date', O = 'opposite', A = 'opposite' }

-- Positions of the content words and of the other words.
local function places_of(text, from)
  local values, content = struct.unpack('<I4I4', text, from + 10)
  local words = from + HEADER + VALUE * values
  return words, words + TOKEN * content
end

-- A part of the tokens in a range as a set, and its size.
local function set_of(text, first, beyond, part)
  local set, size, start, last = {}, 0, part[1], part[2]
  for at = first, beyond - 1, TOKEN do
    local id = sub(text, at + start, at + last)
    if not set[id] then
      set[id] = true
      size = size + 1
    end
  end
  return set, size
end

local function overlap(own, size, text, first, beyond, part)
  local inter, union, seen, start, last = 0, size, {}, part[1], part[2]
  for at = first, beyond - 1, TOKEN do
    local id = sub(text, at + start, at + last)
    if not seen[id] then
      seen[id] = true
      if own[id] then
        inter = inter + 1
      else
        union = union + 1
      end
    end
  end
  return inter, union
end

local function reaches(inter, union, points)
  return union > 0 and 10000 * inter >= points * union
end

local function read_signature(text, from)
  local read = { values = {}, content = {}, before = {}, stems = {}, roles = {} }
  read.full, read.weak = string.byte(text, from, from + 1)
  local words, others = places_of(text, from)
  for at = from + HEADER, words - 1, VALUE do
    local kind = sub(text, at, at)
    read.values[kind] = (read.values[kind] or '') .. sub(text, at + 1, at + VALUE - 1)
  end
  for at = words, others - 1, TOKEN do
    local stem, marks = sub(text, at + 1, at + 4), string.byte(text, at)
    local before = read.stems[stem]
    read.content[#read.content + 1], read.before[#read.content + 1] = stem, marks >= TOPIC
    read.roles[stem] = read.roles[stem] or marks % FILLER
    read.stems[stem] = {
      topic = marks >= TOPIC or before and before.topic, filler = marks % TOPIC >= FILLER or before and before.filler,
    }
  end
  return read
end

-- The content words that the other claim lacks: any, any in the topic, all filling the frame.
local function lacking(one, other)
  local found, topic, filling = false, false, true
  for stem, marks in pairs(one.stems) do
    if not other.stems[stem] then
      found, topic, filling = true, topic or marks.topic, filling and marks.filler
    end
  end
  return found, topic, filling
end

local function has_other(values, others)
  local known = {}
  for at = 1, #others, VALUE - 1 do
    known[sub(others, at, at + VALUE - 2)] = true
  end
  for at = 1, #values, VALUE - 1 do
    if not known[sub(values, at, at + VALUE - 2)] then
      return true
    end
  end
  return false
end

local function replaced(one, other, kind)
  local mine, theirs = one.values[kind] or '', other.values[kind] or ''
  return mine ~= theirs and has_other(mine, theirs) and has_other(theirs, mine)
end

-- Whether one claim names the side that the other denies.
local function opposed(one, other)
  local named, said = one.values.F, other.values.P
  return named and said and named ~= said
end

local function is_dated(read)
  return (read.values.Y or read.values.M or read.values.D or read.values.W) ~= nil
end

local function value_kinds(one, other, strict, framed)
  local found, opposite = {}, false
  for i = 1, #KINDS do
    local kind = KINDS[i]
    local name = NAMES[kind]
    if kind == 'Q' and one.values.n == other.values.n then
      name = 'unit'
    end
    local differs = strict and name ~= 'opposite' and one.values[kind] ~= other.values[kind]
    if (kind ~= 'A' or strict and not opposite) and (differs or replaced(one, other, kind)) then
      opposite = name == 'opposite'
      found[#found + 1] = name
    end
  end
  if framed and not opposite and (opposed(one, other) or opposed(other, one)) then
    opposite = true
    found[#found + 1] = 'opposite'
  end
  if one.full ~= other.full or one.weak ~= other.weak then
    if opposite and (one.full - other.full) % 2 == 1 and one.weak == other.weak then
      found[#found] = nil -- "not locked", "unlocked"
    else
      table.insert(found, 1, 'negation')
    end
  end
  return found
end

local function has(kinds, kind)
  for i = 1, #kinds do
    if kinds[i] == kind then
      return true
    end
  end
  return false
end

-- Whether all kinds are the same; a number and its unit count as one.
local function is_one(kinds)
  local first = kinds[1] == 'unit' and 'number' or kinds[1]
  for i = 2, #kinds do
    if kinds[i] ~= first and not (first == 'number' and kinds[i] == 'unit') then
      return false
    end
  end
  return true
end

local function topic_of(read)
  local topic = {}
  for i = 1, #read.content do
    if read.before[i] then
      topic[#topic + 1] = read.content[i]
    end
  end
  return topic
end

-- Whether the words before the verb are the same in another order.
local function moved(one, other)
  local mine, theirs = topic_of(one), topic_of(other)
  local function within(words, others)
    local known = {}
    for i = 1, #others do
      known[others[i]] = true
    end
    for i = 1, #words do
      if not known[words[i]] then
        return false
      end
    end
    return true
  end
  return table.concat(mine) ~= table.concat(theirs) and within(mine, theirs) and within(theirs, mine)
end

local function order(one, other)
  local shared = {}
  for i = 1, #one.content do
    if other.stems[one.content[i]] then
      shared[#shared + 1] = one.content[i]
    end
  end
  return table.concat(shared)
end

local function exchanged(one, other)
  local pairs_of_roles = {}
  for stem, role in pairs(one.roles) do
    local new = other.roles[stem]
    if new and new ~= role then
      if pairs_of_roles[new * FILLER + role] then
        return true
      end
      pairs_of_roles[role * FILLER + new] = true
    end
  end
  return false
end

-- Whether shared words are reordered; unless `near`, with an exchange of roles.
local function reordered(one, other, near)
  return order(one, other) ~= order(other, one) and (near or exchanged(one, other))
end

-- How two claims differ; nil if their topics differ.
local function difference(one, other, framed, near)
  local mine, my_topic, my_filling = lacking(one, other)
  local theirs, their_topic, their_filling = lacking(other, one)
  if my_topic and their_topic or replaced(one, other, 'T') then
    return nil
  end
  local kinds = value_kinds(one, other, near, framed)
  if #kinds > 0 then
    local alone = is_one(kinds) and not (mine and theirs) and not replaced(one, other, 'A') and not moved(one, other)
      and (has(kinds, 'date') or is_dated(one) == is_dated(other))
    return (near or alone) and kinds[1] or 'none'
  elseif framed and mine and theirs and my_filling and their_filling then
    return 'value'
  elseif not near and (mine or theirs) then
    return 'none'
  elseif reordered(one, other, near) or near and one.full == other.full and one.values.S ~= other.values.S then
    return 'order'
  end
  return near and mine and 'word' or 'none' -- saying less repeats
end

local REPEATING = { none = true, order = true, word = true }
local POLAR = { negation = true, opposite = true }

local function own_side(ask)
  local words, others = places_of(ask.signature, 1)
  local own = read_signature(ask.signature, 1)
  own.about, own.frame = sub(ask.signature, 3, 6), sub(ask.signature, 7, 10)
  own.words, own.size = set_of(ask.signature, words, #ask.signature + 1, WORD)
  own.stem_set, own.stem_size = set_of(ask.signature, words, others, STEM)
  return own
end

-- Intersection, union and difference with a member whose signature starts at `from`; nil if unrelated.
local function compare_signatures(ask, own, member, from, rejected)
  if own.about ~= sub(member, from + 2, from + 5) then
    return nil
  end
  local words, others = places_of(member, from)
  local inter, union = overlap(own.words, own.size, member, words, #member + 1, WORD)
  if union == 0 then
    return nil
  end
  local near = reaches(inter, union, rejected and math.min(ask.duplicate, ask.rejected) or ask.duplicate)
  local framed = own.frame ~= NO_FRAME and own.frame == sub(member, from + 6, from + 9)
  local alike = near
  if not near then
    local common, either = overlap(own.stem_set, own.stem_size, member, words, others, STEM)
    alike = reaches(common, either, ask.conflict)
    if rejected or not (framed or alike) then
      return nil
    end
  end
  local found = difference(own, read_signature(member, from), framed, near)
  if not found or rejected and not REPEATING[found] or not near and found == 'none' then
    return nil
  end
  if not alike and (own.values.F or own.values.P) and not POLAR[found] then
    return nil -- of two-sided attributes only the side is compared
  end
  return inter, union, found
end

local function compare(ask, own, id, member, from, matches)
  local class = sub(member, 1, 1)
  local inter, union, found = compare_signatures(ask, own, member, from, class == 'X')
  if not inter then
    return
  end
  local time, horizon, digest, name = match(member, '^%u(%-?%d+) (%-?%d+) (%S*) ([^%z]*)%z')
  horizon = tonumber(horizon)
  if name == ask.id and class ~= 'X' then
    return -- not its own duplicate, but a rejection outlives the entry
  end
  if class == 'A' and horizon ~= 0 and horizon <= ask.clock then
    return -- past its horizon
  end
  matches[#matches + 1] = {
    id = name, inter = inter, union = union, class = class, digest = digest, time = tonumber(time),
    number = struct.unpack('<I4', id), difference = found,
  }
end

local compared = 0 -- claims, in this call

-- All matches in the scope; nil if there is too much to compare.
local function matches_of(ask, allowed)
  local ids = candidates_of(ask, allowed)
  compared = compared + (ids and #ids or allowed)
  if not ids then
    return nil
  end
  local matches, gone, stale, bytes = {}, {}, false, 0
  local own = #ids > 0 and own_side(ask)
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
        compare(ask, own, some[i], members[i], from, matches)
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

-- Compares bytes: Lua's own comparison depends on the server's locale.
local function comes_before(a, b)
  for at = 1, math.min(#a, #b) do
    local left, right = string.byte(a, at), string.byte(b, at)
    if left ~= right then
      return left < right
    end
  end
  return #a < #b
end

-- Higher similarity first, then approved, then earlier, then by id.
local function nearer(a, b)
  local left, right = a.inter * b.union, b.inter * a.union
  if left ~= right then
    return left > right
  elseif (a.class == 'A') ~= (b.class == 'A') then
    return a.class == 'A'
  elseif a.time ~= b.time then
    return a.time < b.time
  elseif a.id ~= b.id then
    return comes_before(a.id, b.id)
  end
  return a.number < b.number
end

local function kind_of(match, ask)
  if match.class == 'X' then
    return 'rejected'
  end
  local differs = ask.material and match.difference ~= 'none' and (ask.word or match.difference ~= 'word')
  if not differs and reaches(match.inter, match.union, ask.duplicate) then
    return match.class == 'A' and 'duplicate' or 'pending'
  end
  return differs and match.class == 'A' and 'conflict' or nil
end

-- The matches to report, nearest first, and those that decide, by kind.
local function choose(matches, ask)
  table.sort(matches, nearer)
  local best, chosen, left = {}, {}, MATCHES
  for i = 1, #matches do
    local kind = kind_of(matches[i], ask)
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

-- The line of facts that groundwire.state.codec reads.
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

-- Dedup status (f: too much to compare), the matches to report, and those that decide, by kind.
local function compare_with_index(ask, allowed)
  if ask.status ~= 'o' then
    return ask.status, {}, {}
  end
  local matches = matches_of(ask, allowed)
  if not matches then
    return 'f', {}, {}
  end
  return 'o', choose(matches, ask)
end
