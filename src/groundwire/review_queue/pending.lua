-- Answers the pending items of an owner, oldest first. ARGV: owner, how many at most.
local found, limit = {}, tonumber(ARGV[7])
for _, id in ipairs(call('ZRANGE', base .. 'u:' .. ARGV[6], 0, -1)) do
  local one = load(id)
  if one and one.state == 'pending' then
    found[#found + 1] = shown(one)
    if #found == limit then
      break
    end
  end
end
return found
