-- Loads published outcomes; a subject with the same or a higher revision stays.
-- ARGV: prefix, lifetime, name and value of the key that allows it, lifetime of what people blocked, then a packed
-- argument per outcome. Returns how many were taken, or 'LOST'.
local FIRST = 6
local LOADED = {
  'digest', 'user', 'tenant', 'id', 'fingerprint', 'origin', 'state', 'tier', 'revision', 'first', 'joined',
  'facts', 'payload', 'record', 'scope', 'stored', 'signature', 'horizon', 'class', 'time',
  'parents', 'people',
}

if call('GET', prefix .. ARGV[3]) ~= ARGV[4] then
  return 'LOST'
end

local taken = 0
local failed = for_each(FIRST, function(packed)
  local loaded = fields_of(packed, LOADED)
  loaded.revision = tonumber(loaded.revision)
  loaded.lifetime = loaded.people == '1' and ARGV[5] or lifetime
  local before = read(loaded.digest)
  if not before or before.revision < loaded.revision then
    if before then
      leave(loaded, before)
    end
    if loaded.state == 'P' then
      count_place(loaded, 1, #loaded.record)
    end
    if loaded.class ~= '' then
      loaded.index = add_to_index(loaded, loaded.class, loaded.time)
    end
    if loaded.state == 'A' then
      note_parents(loaded)
    end
    write(loaded, loaded)
    taken = taken + 1
  end
end)
return failed or taken
