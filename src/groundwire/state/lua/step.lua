-- Decides a batch of claims and responses in order and atomically, as `groundwire.state.memory` does in Python.
-- ARGV: prefix, lifetime, epoch, deferred, places per user, per tenant, in all, bytes of pending records per tenant,
-- candidates per claim, counts of other buckets, then a packed argument per claim. Returns one string per claim, or
-- 'LOST'. Once as many claims were compared as allowed for one, the rest is left to another call.
local FIRST = 11
local ASKED = '<BBBBBBBc1I4I4I4' .. string.rep('I4c0', 15)

local deferred = ARGV[4] == '1'
local per_user, per_tenant, in_all = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
local bytes_per_tenant, candidates_allowed = tonumber(ARGV[8]), tonumber(ARGV[9])
-- In a cluster, by counter: count of other buckets, count of this one, grants since
local remote_counts, remote_totals = ARGV[10] == '' and {} or cjson.decode(ARGV[10]), {}

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

-- A counter over all buckets; growth of this bucket since the count is not remote.
local function in_all_buckets(field)
  if not remote_totals[field] then
    local held, own, given = unpack(remote_counts[field] or { 0, 0, 0 })
    remote_totals[field] = held + math.max(given - math.max(counter(field) - own, 0), 0)
  end
  return counter(field) + remote_totals[field]
end

-- f: free; u, t, a: the places of the user, the places or bytes of the tenant, all places are taken
local function ask_for_place(ask)
  if counter('u:' .. ask.user) >= per_user then
    return 'u'
  elseif in_all_buckets('t:' .. ask.tenant) >= per_tenant
    or in_all_buckets('b:' .. ask.tenant) + #ask.record > bytes_per_tenant then
    return 't'
  elseif in_all_buckets('total') >= in_all then
    return 'a'
  end
  return 'f'
end

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

local function answered_until(entry)
  return entry.answered or time_of(entry.origin)
end

-- Records that a record was answered: a worker that lost its partition may ask again, and must not have it decided
-- afresh.
local function note(ask, before)
  if ask.clock > tonumber(answered_until(before)) then
    before.answered = ask.time
    put(ask, before, match(before.value, '\n(.*)$'))
  end
end

local function superseded_key(ask, origin)
  return prefix .. 'r:' .. ask.digest .. ',' .. match(origin, '^(.*),')
end

-- Keeps the outcome of an earlier record, which may not be published yet; waiting and given-up ones have no payload.
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

local function is_waiting(user)
  return counter('waiting') > 0 and call('SCARD', prefix .. 'w:' .. user) > 0
end

local function may_be_decided_again(ask, before)
  if before.state ~= 'R' and before.state ~= 'J' or ask.clock <= tonumber(answered_until(before)) then
    return false
  end
  return before.state == 'R' or call('GETRANGE', prefix .. 's:' .. before.joined, 0, 0) ~= 'P'
end

-- The entry of a subject, or nil; reads its scope in the same call.
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
