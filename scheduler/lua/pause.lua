-- Admit no batch request for a while; a longer pause stands.
local until_ms = NOW + ARGV[FIRST]
if until_ms > tonumber(call('GET', PAUSED) or 0) then
  call('SET', PAUSED, string.format('%d', until_ms), 'PX', KEEP_MS + ARGV[FIRST])
end
return 1
