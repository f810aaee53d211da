-- The entries of subjects, with their derivation lines in full; '' where there is none.
-- ARGV: prefix, lifetime, epoch, and then the digest of each subject. Answers one string per subject, or 'LOST'.
local FIRST = 4

if call('GET', prefix .. 'epoch') ~= ARGV[3] then
  return 'LOST'
end

local entries = {}
for at = FIRST, #ARGV do
  local value = call('GET', prefix .. 's:' .. ARGV[at])
  entries[#entries + 1] = value and in_full(value) or ''
end
return entries
