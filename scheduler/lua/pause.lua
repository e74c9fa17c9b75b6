-- Admit no batch request for a while; a longer pause stands.
local until_ms = NOW + tonumber(ARGV[FIRST])
if until_ms > tonumber(redis.call('GET', PAUSED) or 0) then
  redis.call('SET', PAUSED, string.format('%d', until_ms), 'PX', KEEP_MS + tonumber(ARGV[FIRST]))
end
return 1
