-- State and revision of subjects, `A 2`; '' where there is no entry. Only the beginning of an entry is read.
-- ARGV: prefix, lifetime, epoch, and then the digest of each subject. Answers one string per subject, or 'LOST'.
local FIRST, HEAD = 4, 24

if call('GET', prefix .. 'epoch') ~= ARGV[3] then
  return 'LOST'
end

local standings = {}
for at = FIRST, #ARGV do
  local state, revision = match(call('GETRANGE', prefix .. 's:' .. ARGV[at], 0, HEAD), '^(%u) %d (%d+) ')
  standings[#standings + 1] = state and state .. ' ' .. revision or ''
end
return standings
