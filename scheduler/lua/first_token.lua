-- The engine has begun to answer: the prompt is no longer in front of anyone. Answers the permit's standing.
local permit = read(ARGV[FIRST])
if permit and not permit.first then
  change(permit, 'first', true)
  T.firsts = T.firsts + 1
  redis.call('LPUSH', FIRSTS, string.format('%s %d %d', permit.kind, NOW - permit.at, permit.prompt))
  redis.call('LTRIM', FIRSTS, 0, RECENT - 1)
  redis.call('PEXPIRE', FIRSTS, KEEP_MS)
end
save()
return standing(permit)
