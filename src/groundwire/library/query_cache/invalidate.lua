-- Drops entries of a scope: those set until a moment, so that calls which follow each other come to an end.
-- ARGV: base, scope, that moment or '' for now, how many at most.
-- Answers {dropped, expired, 1 where there may be more, the moment}.
local scope, limit = ARGV[2], tonumber(ARGV[4])
local moment = ARGV[3] == '' and written(now) or ARGV[3]
local found = call('ZRANGEBYSCORE', members .. scope, '-inf', moment, 'LIMIT', 0, limit)
local dropped = 0
for i = 1, #found do
  if lives(found[i]) then
    dropped = dropped + 1
  end
  forget(found[i])
  call('ZREM', members .. scope, found[i])
end
return { dropped, #found - dropped, #found == limit and 1 or 0, moment }
