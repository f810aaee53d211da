-- Adds to the ledger of places that steps have given in a cluster; see `groundwire.state.queue_use`.
-- ARGV: its key, the name that a new one gets, the seconds for which that is kept, and then counters, each with what is
-- added to it.
local key = ARGV[1]
if redis.call('HSETNX', key, 'name', ARGV[2]) == 1 then
  redis.call('EXPIRE', key, ARGV[3])
end
for at = 4, #ARGV, 2 do
  redis.call('HINCRBY', key, ARGV[at], ARGV[at + 1])
end
return 1
