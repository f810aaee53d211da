-- Looks up subjects: `entry` (with the whole payload), `payload`, or `status` (`A 2`, without reading the record).
-- ARGV: prefix, lifetime, epoch, name, then a digest per subject. Returns one string per subject, '' if there is none,
-- or 'LOST'.
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
