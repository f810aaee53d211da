-- Begins scripts that run while a key has a value, else they return 'LOST', on a run of the
-- server, else they return 'OTHER': a restarted server or a promoted replica may lack what was written last.
-- ARGV: prefix of every key, name and value of the key that allows it, run (empty: any), then those of the script.
local call, sub = redis.call, string.sub
local prefix = ARGV[1]

if call('GET', prefix .. ARGV[2]) ~= ARGV[3] then
  return 'LOST'
end
if ARGV[4] ~= '' then
  local info = call('INFO', 'server', 'replication')
  if string.match(info, '\nrun_id:(%x+)') .. string.match(info, '\nmaster_replid:(%x+)') ~= ARGV[4] then
    return 'OTHER'
  end
end

local function split(joined, size)
  local parts = {}
  for at = 1, #joined, size do
    parts[#parts + 1] = sub(joined, at, at + size - 1)
  end
  return parts
end

-- The fields of a packed argument; `format` is that of the lengths before them.
local function fields_of(format, packed)
  local fields = { struct.unpack(format, packed) }
  local at = table.remove(fields)
  for i = 1, #fields do
    local length = fields[i]
    fields[i] = sub(packed, at, at + length - 1)
    at = at + length
  end
  return fields
end
