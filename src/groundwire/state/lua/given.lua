-- Adds granted places to the ledger of a cluster; see `groundwire.state.queue_use`.
-- ARGV: its key, name and lifetime of a new one, then counters with their increments.
local key = ARGV[1]
if redis.call('HSETNX', key, 'name', ARGV[2]) == 1 then
  redis.call('EXPIRE', key, ARGV[3])
end
for at = 4, #ARGV, 2 do
  redis.call('HINCRBY', key, ARGV[at], ARGV[at + 1])
end
return 1
