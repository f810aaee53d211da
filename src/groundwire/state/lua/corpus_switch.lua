-- Replaces a corpus by a loaded one.
-- KEYS     entities and relations as loaded, then as they are read
-- Returns 0, and changes nothing, if the loaded one is incomplete.
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
