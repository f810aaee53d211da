-- The entries of subjects, as they are; '' where there is none.
-- ARGV: prefix, lifetime, epoch, and then the digest of each subject. Answers one string per subject, or 'LOST'.
local FIRST = 4

if call('GET', prefix .. 'epoch') ~= ARGV[3] then
  return 'LOST'
end

local entries = {}
for at = FIRST, #ARGV do
  entries[#entries + 1] = call('GET', prefix .. 's:' .. ARGV[at]) or ''
end
return entries
