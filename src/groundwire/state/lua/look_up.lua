-- What is stored of subjects, by the name of the lookup:
--   entry    the text of the entry, with its derivation line in full
--   payload  the derivation line alone: what is pending carries its record, which may be large
--   status   state and revision, `A 2`; only the beginning of the entry is read
-- ARGV: prefix, lifetime, epoch, name, and then the digest of each subject. Answers one string per subject, '' where
-- there is no entry, or 'LOST'.
local FIRST, HEAD = 5, 24

if call('GET', prefix .. 'epoch') ~= ARGV[3] then
  return 'LOST'
end

local look_up = {
  entry = function(key)
    local value = call('GET', key)
    return value and in_full(value)
  end,
  payload = function(key)
    local value = call('GET', key)
    return value and line_in_full(match(value, '^[^\n]*\n[^\n]*\n([^\n]*)'))
  end,
  status = function(key)
    local state, revision = match(call('GETRANGE', key, 0, HEAD), '^(%u) %d (%d+) ')
    return state and state .. ' ' .. revision
  end,
}

local found = {}
for at = FIRST, #ARGV do
  found[#found + 1] = look_up[ARGV[4]](prefix .. 's:' .. ARGV[at]) or ''
end
return found
