-- Reads entries in one atomic call. Sent after packed.lua. ARGV: last byte of each to read, then a digest per subject.
-- Returns one string per subject.
local found = {}
for at = 6, #ARGV do
  found[#found + 1] = call('GETRANGE', prefix .. 's:' .. ARGV[at], 0, ARGV[5])
end
return found
