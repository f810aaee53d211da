-- Carries out actions of people, and of the gate itself, in order and atomically. `groundwire.state.model` says what
-- they do, `groundwire.state.memory` is the same in Python, and tests hold the two together.
-- ARGV: prefix, seconds for which actions and what they blocked are kept, epoch, candidates per claim, and then one
-- packed argument for each action. Answers one string per action, or 'LOST'. As in step.lua, no action after the
-- first is begun once as much was compared as one claim may be compared with.
local FIRST = 5
local AFFECTED = 1000 -- claims resting on a retracted one that are named
local ASKED = {
  'digest', 'user', 'tenant', 'id', 'origin', 'key', 'action', 'expected', 'refused', 'flags', 'scope', 'stored',
  'probed', 'signature', 'parents', 'payload', 'decisive',
}

local candidates_allowed = tonumber(ARGV[4])

if call('GET', prefix .. 'epoch') ~= ARGV[3] then
  return 'LOST'
end

local function ask_of(packed)
  local ask = fields_of(packed, ASKED)
  local expired, status, material, word, duplicate, conflict, rejected, horizon, only_recorded, forgets =
    match(ask.flags, '^(%d) (%a) (%d) (%d) (%d+) (%d+) (%d+) (%-?%d+) (%d) (%d)$')
  ask.expired, ask.status, ask.material, ask.word = expired == '1', status, material == '1', word == '1'
  ask.duplicate, ask.conflict, ask.rejected = tonumber(duplicate), tonumber(conflict), tonumber(rejected)
  ask.only_recorded, ask.forgets = only_recorded == '1', forgets == '1'
  ask.horizon = horizon
  ask.time = time_of(ask.origin)
  ask.clock = tonumber(ask.time)
  return ask
end

-- The entry of a subject; nil also for what stands in the place of a record that became a dead letter.
local function entry_of(ask)
  local entry = read(ask.digest)
  if entry and (entry.revision > 0 or entry.state == 'W') then
    return entry
  end
end

-- Keeps what an action came to, for when it comes again; answers whether it did. A refusal takes the place of nothing.
local function remember(ask, outcome)
  local key = prefix .. 'a:' .. ask.key
  local value = table.concat({ ask.digest, ask.action, ask.decisive, ask.origin, outcome }, ' ')
  if sub(outcome, 1, 1) == '-' then
    return call('SET', key, value, 'EX', lifetime, 'NX')
  end
  return call('SET', key, value, 'EX', lifetime)
end

local function standing(entry)
  return entry and string.format(' %s %d', entry.state, entry.revision) or ''
end

local HEX = {}
for byte = 0, 255 do
  HEX[string.char(byte)] = string.format('%02x', byte)
end

-- Claims that were derived from a subject, no more of them than one claim may be compared with.
local function children_of(ask)
  local children, seen, cursor = {}, {}, '0'
  repeat
    local page = call('SSCAN', prefix .. 'd:' .. ask.digest, cursor, 'COUNT', candidates_allowed)
    cursor = page[1]
    for i = 1, #page[2] do
      local child = page[2][i]
      if #children < candidates_allowed and not seen[child] then
        seen[child] = true
        children[#children + 1] = child
      end
    end
  until cursor == '0' or #children >= candidates_allowed
  compared = compared + #children
  return children
end

-- Ids of the approved claims that rest on a subject, by their bytes, and how many they are, as JSON. They are sorted
-- as hexadecimal digits, which every locale of a server puts in the same order.
local function affected_by(ask)
  local children = children_of(ask)
  local digits, ids = {}, {}
  for i = 1, #children do
    local child = sub(children[i], 1, DIGEST)
    if child ~= ask.digest and call('GETRANGE', prefix .. 's:' .. child, 0, 0) == 'A' then
      local id = sub(children[i], DIGEST + 1)
      local hex = string.gsub(id, '.', HEX)
      digits[#digits + 1] = hex
      ids[hex] = id
    end
  end
  table.sort(digits)
  local named = {}
  for i = 1, math.min(#digits, AFFECTED) do
    named[i] = cjson.encode(ids[digits[i]])
  end
  return string.format('[%d,[', #digits) .. table.concat(named, ',') .. ']]'
end

-- What became of an action, as it is answered: when that was, behind the mark.
local function reply(outcome, time)
  return sub(outcome, 1, 1) .. time .. ' ' .. sub(outcome, 2)
end

local function carried_out(ask, entry, outcome, time)
  local value = entry.value
  if ask.action == 'retract' and sub(value, -1) == '\n' then -- rebuilt, without whom it affected
    value = value .. affected_by(ask)
  end
  return reply(outcome, time) .. '\n' .. in_full(value)
end

-- What is kept of the action, or nil.
local function kept(ask)
  local before = {}
  before.digest, before.action, before.decisive, before.origin, before.outcome =
    match(call('GET', prefix .. 'a:' .. ask.key) or '', '^(%S+) (%S+) (%S+) (%S+) (.+)$')
  if not before.digest or (ask.only_recorded and before.origin ~= ask.origin) then
    return nil
  end
  before.revision = tonumber(match(before.outcome, '^%+(%d+) '))
  return before
end

-- The entry as the action left it: as it is, or as it was before a retraction; nil where that is not known. Second,
-- whether the revision that the action brought about is part of the entry's past: an action that was lost before
-- anybody knew of it is carried out again, and its revision may by now be the work of another.
local function as_left(before, entry)
  local own = entry
  if before.revision < entry.revision then
    own = entry_from(call('GET', prefix .. 'o:' .. before.digest))
  end
  if own and own.revision == before.revision then
    local its = before.origin == own.origin
    return its and own or nil, its
  end
  return nil, before.revision < entry.revision and (before.action ~= 'retract' or entry.state == 'B')
end

-- What an action that came before was answered, or nil.
local function recorded(ask, entry)
  local before = kept(ask)
  local decided = entry and entry.state ~= 'W' and entry or nil
  if before then
    if before.digest ~= ask.digest or before.action ~= ask.action or before.decisive ~= ask.decisive then
      return reply('-action_id_reused', 0)
    elseif not before.revision then
      return reply(before.outcome, time_of(before.origin))
    end
    local own, stands
    if decided then
      own, stands = as_left(before, decided)
    end
    if stands then
      return carried_out(ask, own or decided, before.outcome, time_of(before.origin))
    elseif decided and before.revision <= decided.revision and not ask.only_recorded then
      call('DEL', prefix .. 'a:' .. ask.key) -- its revision is another's: a later one is to prove nothing
    end
  end
  if decided and decided.origin == ask.origin then -- known from the topics alone
    local outcome = string.format('+%d %s', decided.revision, decided.state)
    if not ask.only_recorded then
      remember(ask, outcome)
    end
    return carried_out(ask, decided, outcome, ask.time)
  end
end

-- Why the action cannot be, or nil.
local function obstacle(ask, entry)
  if ask.refused ~= '' then
    return ask.refused
  elseif not entry then
    return 'unknown'
  elseif entry.state == 'W' then
    return 'waiting'
  elseif entry.revision ~= tonumber(ask.expected) then
    return 'stale'
  elseif ask.action == 'retract' and entry.state ~= 'A' then
    return 'not_approved'
  elseif ask.action ~= 'retract' and entry.state ~= 'P' then
    return 'not_pending'
  end
  return ask.payload == '' and 'unknown' or nil -- it was decided after whoever asks looked it up
end

-- The line of facts of the next revision, whether an approved claim says the same. What the person knew of the
-- parents stays.
local function compare_again(ask, parents)
  local status, kept, best = compare_with_index(ask, candidates_allowed)
  return facts_line(status, 'n', parents, kept), best.duplicate ~= nil
end

-- State, class in the index, and facts that an action brings about.
local function settle(ask, entry)
  local status, place_and_rest = match(entry.value, '\n(%a)(%a[^\n]*)')
  local facts = status .. 'n' .. sub(place_and_rest, 2)
  if ask.action ~= 'approve' and ask.action ~= 'edit' then
    return 'B', ask.action ~= 'expire' and 'X' or nil, facts
  elseif ask.expired then
    return 'B', nil, facts
  end
  local parents = match(place_and_rest, '^%a (%u+)') or ''
  local compared_facts, duplicate = compare_again(ask, parents)
  if duplicate then
    return 'B', nil, compared_facts
  end
  return 'A', 'A', compared_facts
end

-- Has an indexed claim found as of another class; answers whether it was there.
local function change_class(ask, entry, class)
  local members, id = member_of(entry)
  local member = members and call('HGET', members, id)
  if not member then
    return false
  end
  call('HSET', members, id, member_head(ask, class, ask.time) .. match(member, '^[^%z]*%z(.*)$'))
  if class == 'X' then
    note_rejected(match(entry.index, '^(.+)/'), id)
  end
  return true
end

-- Puts the text where it now belongs; returns what the entry says of it. Only an edit brings another text, and an
-- approved claim's text is no longer known here.
local function index_anew(ask, entry, class)
  if not class or ask.action == 'edit' then
    leave_index(entry)
  elseif change_class(ask, entry, class) then
    return class ~= 'X' and entry.index or nil
  end
  if class and ask.scope ~= '' and (class == 'X' or ask.status == 'o') then
    return add_to_index(ask, class, ask.time)
  end
end

-- Answers like a recorded action, but with an asterisk: it happened now.
local function carry_out(ask, entry)
  local state, class, facts = settle(ask, entry)
  leave_queue(ask, entry)
  if state == 'A' then
    note_parents(ask)
  elseif entry.state == 'A' and entry.revision > 1 then -- whoever approved it may have died before that was published
    call('SET', prefix .. 'o:' .. ask.digest, entry.value, 'EX', lifetime)
  end
  ask.fingerprint = entry.fingerprint
  local value = write(ask, {
    state = state, tier = state == 'A' and 1 or 3, revision = entry.revision + 1, origin = ask.origin,
    first = entry.first ~= '-' and entry.first or entry.origin, index = index_anew(ask, entry, class), facts = facts,
    payload = ask.payload, record = ask.action == 'retract' and affected_by(ask) or '',
  })
  local outcome = string.format('%d %s', entry.revision + 1, state)
  remember(ask, '+' .. outcome)
  return reply('*' .. outcome, ask.time) .. '\n' .. in_full(value)
end

local function refuse(ask, entry, code)
  local outcome = '-' .. code .. standing(entry)
  return reply(outcome, not ask.forgets and remember(ask, outcome) and ask.time or 0)
end

local function answer(ask)
  local entry = entry_of(ask)
  local before = recorded(ask, entry)
  if before then
    return before
  end
  local code = obstacle(ask, entry)
  return code and refuse(ask, entry, code) or carry_out(ask, entry)
end

local answers = {}
local failed = for_each(FIRST, function(packed)
  answers[#answers + 1] = answer(ask_of(packed))
  return compared >= candidates_allowed
end)
return failed or answers
