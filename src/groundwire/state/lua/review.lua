-- Carries out review actions in order and atomically, as `groundwire.state.memory` does in Python.
-- ARGV: prefix, lifetime of actions and what they blocked, epoch, candidates per claim, then a packed argument per
-- action. Returns one string per action, or 'LOST'; as in step.lua, fewer if comparing takes long.
local FIRST = 5
local AFFECTED = 1000 -- derived claims that are named
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

-- The entry of a subject; nil also if its record was given up.
local function entry_of(ask)
  local entry = read(ask.digest)
  if entry and (entry.revision > 0 or entry.state == 'W') then
    return entry
  end
end

-- Records the outcome of an action; returns whether it did. A refusal replaces nothing.
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

-- Claims derived from a subject, at most `candidates_allowed`.
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

-- Number and ids of approved derived claims as JSON, sorted as hexadecimal digits, whatever the server's locale.
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

-- The answer to an action: its outcome with its time.
local function reply(outcome, time)
  return sub(outcome, 1, 1) .. time .. ' ' .. sub(outcome, 2)
end

local function carried_out(ask, entry, outcome, time)
  local value = entry.value
  if ask.action == 'retract' and sub(value, -1) == '\n' then -- rebuilt, without affected claims
    value = value .. affected_by(ask)
  end
  return reply(outcome, time) .. '\n' .. in_full(value)
end

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

-- The entry as the action left it, now or before a retraction, or nil; and whether the action's revision is part of the
-- entry's past: a lost action is carried out again, and its revision may be another's by now.
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
      call('DEL', prefix .. 'a:' .. ask.key) -- another action has its revision
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
  return ask.payload == '' and 'unknown' or nil -- decided after the requester looked it up
end

-- State, index class and facts after an action; parents stay as the person saw them.
local function settle(ask, entry)
  local status, place_and_rest = match(entry.value, '\n(%a)(%a[^\n]*)')
  local facts = status .. 'n' .. sub(place_and_rest, 2)
  if ask.action ~= 'approve' and ask.action ~= 'edit' then
    return 'B', ask.action ~= 'expire' and 'X' or nil, facts
  elseif ask.expired then
    return 'B', nil, facts
  end
  local parents = match(place_and_rest, '^%a (%u+)') or ''
  local compared_status, kept, best = compare_with_index(ask, candidates_allowed)
  local compared_facts = facts_line(compared_status, 'n', parents, kept)
  if best.duplicate then
    return 'B', nil, compared_facts
  end
  return 'A', 'A', compared_facts
end

-- Changes the class of an indexed claim; returns whether it was indexed.
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

-- Reindexes the text; returns its place for the entry. Only an edit changes the text.
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

-- Answers like a recorded action, with an asterisk for a fresh one.
local function carry_out(ask, entry)
  local state, class, facts = settle(ask, entry)
  leave_queue(ask, entry)
  if state == 'A' then
    note_parents(ask)
  elseif entry.state == 'A' and entry.revision > 1 then -- the approval may not be published yet
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
