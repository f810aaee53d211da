-- Puts a loaded corpus in the place of the one before.
-- KEYS     entities and relations as loaded, then as they are read
-- Answers 0, and changes nothing, where what was loaded is not whole any more.
for place = 1, 2 do
  if redis.call('HEXISTS', KEYS[place], '') == 0 then
    return 0
  end
end
for place = 1, 2 do
  redis.call('PERSIST', KEYS[place])
  redis.call('UNLINK', KEYS[place + 2])
  redis.call('RENAME', KEYS[place], KEYS[place + 2])
end
return 1
