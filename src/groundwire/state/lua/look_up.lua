-- Reads entries in one atomic call. ARGV: prefix, name and value of the key that allows it, last byte of each to read,
-- then a digest per subject. Returns one string per subject, or 'LOST'.
if redis.call('GET', ARGV[1] .. ARGV[2]) ~= ARGV[3] then
  return 'LOST'
end
local found = {}
for at = 5, #ARGV do
  found[#found + 1] = redis.call('GETRANGE', ARGV[1] .. 's:' .. ARGV[at], 0, ARGV[4])
end
return found
