-- What every script of the cache begins with. Keys, behind the base in ARGV[1]:
--   e:<entry>   the scope's digest, a line break, the entry as JSON   expires with its mode's lifetime
--   used        sorted set of entries by last use                     these four expire after the last entry
--   due         sorted set of entries by the end of their lifetime
--   scopes      hash: entry -> its scope
--   s:<scope>   sorted set of a scope's entries by when they were set
-- Times are microseconds of the server's clock, written out in full: as numbers they would be rounded.
-- An entry that a part of the index does not know is not served: it could outlive its scope's invalidation.
local base = ARGV[1]
local call = redis.call
local entries, used, due, scopes, members = base .. 'e:', base .. 'used', base .. 'due', base .. 'scopes', base .. 's:'

local time = call('TIME')
local now = time[1] * 1000000 + time[2]

local function written(number)
  return string.format('%.0f', number)
end

local function lives(entry)
  local ends = call('ZSCORE', due, entry)
  return ends and tonumber(ends) > now and call('EXISTS', entries .. entry) == 1
end

local function forget(entry)
  local scope = call('HGET', scopes, entry)
  if scope then
    call('ZREM', members .. scope, entry)
    call('HDEL', scopes, entry)
  end
  call('DEL', entries .. entry)
  call('ZREM', used, entry)
  return call('ZREM', due, entry)
end
