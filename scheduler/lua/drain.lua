-- The request was withdrawn, but the engine may still be working on it for a while: it counts until then.
local permit = read(ARGV[FIRST])
if permit then
  if permit.kind == 'b' and permit.standing == 'h' then
    change(permit, 'standing', 'd')
  end
  redis.call('ZADD', EXPIRY, 'XX', NOW + tonumber(ARGV[FIRST + 1]), permit.token)
end
save()
return permit and 1 or 0
