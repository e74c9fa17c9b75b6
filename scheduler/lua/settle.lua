-- Book the true tokens of a request in place of the estimate. Answers the permits asked back for it.
local permit = read(ARGV[FIRST])
local victims = {}
if permit then
  change(permit, 'tokens', tonumber(ARGV[FIRST + 1]))
  victims = reclaim()
end
save()
return victims
