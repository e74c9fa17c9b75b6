-- Take note of the interactive load seen at the engine, for a while. Answers the permits asked back for it.
local slots, tokens, ttl_ms = unpack(ARGV, FIRST)
redis.call('HSET', OBSERVED, 'slots', slots, 'tokens', tokens, 'until', NOW + tonumber(ttl_ms))
redis.call('PEXPIRE', OBSERVED, KEEP_MS)
local victims = reclaim()
save()
return victims
