-- Answers an item that is pending or approving to its owner, else nothing. ARGV: queue id, owner.
local one = read(ARGV[6])
if not one or one.owner ~= ARGV[7] then
  return nil
end
one = load(ARGV[6])
return one and open(one) and shown(one) or nil
