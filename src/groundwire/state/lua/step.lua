-- One step: decides a batch of claims and responses in order, atomically. `groundwire.state.model` says what is
-- decided, `groundwire.state.memory` is the same in Python, and tests hold the two together.
-- ARGV: prefix, lifetime, epoch, deferred, places per user, per tenant, in all, bytes of pending records per tenant,
-- candidates per claim, what is known of other buckets, and then one packed argument for each claim. Answers one
-- string per claim, or 'LOST'. No claim after the first
-- is begun once as many have been compared as one claim may be compared with: the server has others to serve,
-- and as a batch gives what its claims give one by one, the rest can follow in a call of its own.
local FIRST = 11
local ASKED = '<BBBBBBBc1I4I4I4' .. string.rep('I4c0', 15)

local deferred = ARGV[4] == '1'
local per_user, per_tenant, in_all = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
local bytes_per_tenant, candidates_allowed = tonumber(ARGV[8]), tonumber(ARGV[9])
-- Of a cluster, by counter: what other buckets held when they were counted, what this one held, and what was given in
-- all of them since.
local told, others = ARGV[10] == '' and {} or cjson.decode(ARGV[10]), {}

if call('GET', prefix .. 'epoch') ~= ARGV[3] then
  return 'LOST'
end

local function ask_of(packed)
  local base, capped, wait, ordered, queued, material, word, status, duplicate, conflict, rejected, digest, user, tenant,
    id, fingerprint, origin, time, horizon, scope, stored, probed, signature, parents, payload, record = struct.unpack(ASKED, packed)
  return {
    base = base, capped = capped == 1, wait = wait == 1, ordered = ordered == 1, queued = queued == 1,
    material = material == 1, word = word == 1, status = status, duplicate = duplicate, conflict = conflict,
    rejected = rejected, digest = digest, user = user, tenant = tenant, id = id,
    fingerprint = fingerprint, origin = origin, time = time, clock = tonumber(time), horizon = horizon, scope = scope,
    stored = stored, probed = probed, signature = signature, parents = parents, payload = payload, record = record,
  }
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

local function tier_of(ask, status, best, parents)
  if ask.base == 3 or best.duplicate then
    return 3
  end
  local doubtful = ask.capped or status == 'f' or best.conflict or best.rejected or find(parents, '[^A]')
  return ask.base == 1 and doubtful and 2 or ask.base
end

-- What a counter is of all buckets. By what this one has grown since it was counted, less was given in others.
local function in_all_buckets(field)
  if not others[field] then
    local held, own, given = unpack(told[field] or { 0, 0, 0 })
    others[field] = held + math.max(given - math.max(counter(field) - own, 0), 0)
  end
  return counter(field) + others[field]
end

local function has_no_room(ask)
  return in_all_buckets('t:' .. ask.tenant) >= per_tenant
    or in_all_buckets('b:' .. ask.tenant) + #ask.record > bytes_per_tenant
end

-- n: none needed, f: free, u, t, a: the places of the user, the places or bytes of the tenant, all places are taken.
local function ask_for_place(ask)
  if counter('u:' .. ask.user) >= per_user then
    return 'u'
  elseif has_no_room(ask) then
    return 't'
  elseif in_all_buckets('total') >= in_all then
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
  elseif not ask.queued then
    return 'V', 'n'
  elseif best.pending then
    return 'J', 'n'
  end
  local place = ask_for_place(ask)
  return place == 'f' and 'P' or 'R', place
end

-- The time of the latest record of a subject that was answered.
local function answered_until(entry)
  return entry.answered or time_of(entry.origin)
end

-- Remembers what a record was answered where it might later be decided afresh: it was settled with that answer, and
-- a worker that lost its partition and asks once more must not start what nobody would finish.
local function note(ask, before)
  if ask.clock > tonumber(answered_until(before)) then
    before.answered = ask.time
    put(ask, before, match(before.value, '\n(.*)$'))
  end
end

-- Where an outcome is kept that a later record has taken the place of: under its own record.
local function superseded_key(ask, origin)
  return prefix .. 'r:' .. ask.digest .. ',' .. match(origin, '^(.*),')
end

-- Keeps the outcome of an earlier record, whose worker may have died before it was published. What waits or was given
-- up has no line to derive a decision from.
local function supersede(ask, before)
  if not match(before.value, '\n[^\n]*\n\n') then
    call('SET', superseded_key(ask, before.origin), before.value, 'EX', lifetime)
  end
end

local function decide(ask, before)
  local status, kept, best = compare_with_index(ask, candidates_allowed)
  local parents = states_of(ask.parents)
  local tier = tier_of(ask, status, best, parents)
  local state, place = settle(ask, tier, best)
  local again = before and before.revision >= 1
  local answered = before and answered_until(before)
  local entry = {
    state = state, tier = tier, revision = again and before.revision + 1 or 1, origin = ask.origin,
    first = again and (before.first ~= '-' and before.first or before.origin) or '-',
    joined = state == 'J' and best.pending.digest or nil, facts = facts_line(status, place, parents, kept),
    payload = ask.payload, record = state == 'P' and ask.record or '',
    answered = answered and tonumber(answered) > ask.clock and answered or nil,
  }
  if before then
    leave(ask, before)
    supersede(ask, before)
  end
  if state == 'P' then
    count_place(ask, 1, #ask.record)
  end
  if status == 'o' and (state == 'A' or state == 'P') then
    entry.index = add_to_index(ask, state, ask.time)
  end
  if state == 'A' then
    note_parents(ask)
  end
  write(ask, entry)
  local standing = state .. ' ' .. tier .. ' ' .. string.format('%d', entry.revision) .. ' ' .. entry.first
  return '+' .. standing .. '\n' .. entry.facts
end

local function wait(ask, before)
  local again = before and before.revision >= 1
  call('SADD', prefix .. 'w:' .. ask.user, ask.digest)
  count('waiting', 1)
  if before then
    supersede(ask, before)
  end
  write(ask, {
    state = 'W', tier = 0, revision = again and before.revision or 0, origin = ask.origin,
    first = again and (before.first ~= '-' and before.first or before.origin) or '-', facts = '', payload = '',
    record = '',
  })
  return 'W'
end

-- Whether any claim of a user waits; where none does at all, nobody has to ask.
local function is_waiting(user)
  return counter('waiting') > 0 and call('SCARD', prefix .. 'w:' .. user) > 0
end

-- Whether a recorded outcome gives way to a new one.
local function may_be_decided_again(ask, before)
  if before.state ~= 'R' and before.state ~= 'J' or ask.clock <= tonumber(answered_until(before)) then
    return false
  end
  return before.state == 'R' or call('GETRANGE', prefix .. 's:' .. before.joined, 0, 0) ~= 'P'
end

-- The entry of a claim or response, or nil. What its scope has comes with it: a call costs more than what it gives.
local function look_up(ask)
  if ask.status ~= 'o' then
    return read(ask.digest)
  end
  local found = call('MGET', prefix .. 's:' .. ask.digest, prefix .. 'k:' .. ask.scope, prefix .. 'x:' .. ask.scope)
  ask.page, ask.rejected_ids = found[2] or '', found[3] or ''
  return entry_from(found[1])
end

local function answer(ask)
  local before = look_up(ask)
  if before and before.fingerprint ~= ask.fingerprint then
    return '!'
  end
  local own = before and before.origin ~= ask.origin and call('GET', superseded_key(ask, ask.origin))
  if own then
    return '=' .. in_full(own)
  elseif before and before.state == 'W' then
    if deferred then
      return decide(ask, before)
    end
    note(ask, before)
    return before.origin == ask.origin and 'W' or 'w'
  elseif before and not may_be_decided_again(ask, before) then
    if before.state == 'J' then
      note(ask, before)
    end
    return '=' .. in_full(before.value)
  elseif not deferred and (ask.wait or ask.ordered and is_waiting(ask.user)) then
    return wait(ask, before)
  end
  return decide(ask, before)
end

local answers = {}
local failed = for_each(FIRST, function(packed)
  answers[#answers + 1] = answer(ask_of(packed))
  return compared >= candidates_allowed
end)
return failed or answers
