-- Loads outcomes that were decided before, as a rebuild or a worker after a reconnect knows them. A subject
-- that state holds at the same or a higher revision stays as it is.
-- ARGV: prefix, lifetime, name and value of the key that allows it, and then LOADED arguments for each
-- outcome. Answers how many were taken, or 'LOST'.
local LOADED, FIRST = 20, 5

if call('GET', prefix .. ARGV[3]) ~= ARGV[4] then
  return 'LOST'
end

local taken = 0
for at = FIRST, #ARGV, LOADED do
  local subject = {
    digest = ARGV[at], user = ARGV[at + 1], tenant = ARGV[at + 2], id = ARGV[at + 3], fingerprint = ARGV[at + 4],
    scope = ARGV[at + 14], stored = ARGV[at + 15], signature = ARGV[at + 16], horizon = ARGV[at + 17],
  }
  local entry = {
    origin = ARGV[at + 5], state = ARGV[at + 6], tier = ARGV[at + 7], revision = tonumber(ARGV[at + 8]),
    first = ARGV[at + 9], joined = ARGV[at + 10], facts = ARGV[at + 11], payload = ARGV[at + 12],
    record = ARGV[at + 13],
  }
  local class, time = ARGV[at + 18], ARGV[at + 19]
  local before = read(subject.digest)
  if not before or before.revision < entry.revision then
    if before then
      leave(subject, before)
    end
    if entry.state == 'P' then
      count_place(subject, 1)
    end
    if class ~= '' then
      entry.index = add_to_index(subject, class, time)
    end
    write(subject, entry)
    taken = taken + 1
  end
end
return taken
