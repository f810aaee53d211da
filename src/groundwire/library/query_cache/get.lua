-- Reads an entry and notes its use. ARGV: base, entry.
-- Answers {0, the entry as JSON}, or {how many were found expired}.
local entry = ARGV[2]
local value = lives(entry) and call('GET', entries .. entry)
if value then
  local line = string.find(value, '\n', 1, true)
  local scope = string.sub(value, 1, line - 1)
  if scope == '' or call('ZSCORE', members .. scope, entry) then
    call('ZADD', used, written(now), entry)
    return { 0, string.sub(value, line + 1) }
  end
end
return { forget(entry) }
