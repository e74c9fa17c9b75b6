-- Extend what still exists by one lease (XX: what has gone stays gone). Answers { epoch, standing ... } in the order asked.
local id = epoch()
local answer = { id }
for n = FIRST, #ARGV do
  local permit = read(ARGV[n])
  if permit then
    redis.call('ZADD', EXPIRY, 'XX', 'GT', NOW + LEASE_MS, permit.token)
  end
  answer[#answer + 1] = standing(permit)
end
save()
return answer
