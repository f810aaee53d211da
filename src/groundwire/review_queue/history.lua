-- Answers the newest rows of an owner's two lists. ARGV: owner, how many of each.
local last = tonumber(ARGV[7]) - 1
return { call('LRANGE', base .. 'a:' .. ARGV[6], 0, last), call('LRANGE', base .. 'd:' .. ARGV[6], 0, last) }
