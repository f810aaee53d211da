-- Runs a command if the lock in KEYS[1] still has the token ARGV[1]; returns whether it did.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 0
end
redis.call(unpack(ARGV, 2))
return 1
