-- Admit no batch request for a while; a longer pause stands, unless it was begun before the clock was set back.
local until_ms, before = NOW + ARGV[FIRST], tonumber(call('GET', PAUSED) or 0)
if until_ms > before or before > NOW + LONGEST_MS then
  call('SET', PAUSED, string.format('%d', until_ms), 'PX', KEEP_MS + ARGV[FIRST])
end
return 1
