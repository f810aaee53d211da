-- Runs a command if the key KEYS[1] still has the value ARGV[1]; returns whether it did.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 0
end
redis.call(unpack(ARGV, 2))
return 1
