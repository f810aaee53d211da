-- Releases a waiting claim whose record became a dead letter; a later record is decided anew. Returns 1 if state holds
-- an outcome of it.
-- ARGV: prefix, lifetime, digest of the subject, digest of its user.
local digest, user = ARGV[3], ARGV[4]
local entry = read(digest)
if not entry then
  return 0
elseif entry.state ~= 'W' then
  return match(entry.value, '^[^\n]*\n[^\n]*\n\n') and 0 or 1
end
leave({ digest = digest, user = user }, entry)
write({ digest = digest, fingerprint = entry.fingerprint }, {
  state = 'R', tier = 2, revision = entry.revision, origin = entry.origin, first = entry.first, facts = 'on',
  payload = '', record = '', answered = entry.answered,
})
store_counters()
return 0
