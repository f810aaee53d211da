-- The lines with which the outcomes of subjects were recorded; '' where there is none. A script, not MGET: what is
-- pending carries its record, which may be large and is not asked for.
-- ARGV: prefix, lifetime, epoch, and then the digest of each subject. Answers one string per subject, or 'LOST'.
local FIRST = 4

if call('GET', prefix .. 'epoch') ~= ARGV[3] then
  return 'LOST'
end

local payloads = {}
for at = FIRST, #ARGV do
  local value = call('GET', prefix .. 's:' .. ARGV[at])
  payloads[#payloads + 1] = value and line_in_full(match(value, '^[^\n]*\n[^\n]*\n([^\n]*)')) or ''
end
return payloads
