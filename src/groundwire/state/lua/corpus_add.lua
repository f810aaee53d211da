-- Adds JSON lines to the relations of their pairs of names.
-- KEYS[1]  the relations of a corpus
-- ARGV[1]  most bytes that a pair may have; then for each relation the field of its pair and its line
-- Returns the positions, from 0, of relations that did not fit.
local refused = {}
for place = 2, #ARGV, 2 do
  local field, line = ARGV[place], ARGV[place + 1] .. '\n'
  local known = redis.call('HGET', KEYS[1], field) or ''
  if not string.find('\n' .. known, '\n' .. line, 1, true) then
    if #known + #line > tonumber(ARGV[1]) then
      refused[#refused + 1] = (place - 2) / 2
    else
      redis.call('HSET', KEYS[1], field, known .. line)
    end
  end
end
return refused
