-- Runs one command if a key still has the value that its owner gave it; answers whether it did.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 0
end
redis.call(unpack(ARGV, 2))
return 1
