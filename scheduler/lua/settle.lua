-- Book the true tokens of a request in place of the estimate. Answers the permits asked back for it.
if not record then
  return {}
end
local token = ARGV[FIRST]
-- In the hash before others are asked back: it may be one of them.
call('HSET', PERMITS, token, change(read(token, record), 'tokens', ARGV[FIRST + 1] + 0))
local victims = reclaim()
save()
return victims
