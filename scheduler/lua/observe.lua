-- Take note of the interactive load seen at the engine, for a while. Answers the permits asked back for it.
observed = pack(SEEN, ARGV[FIRST] + 0, ARGV[FIRST + 1] + 0, NOW + ARGV[FIRST + 2])
call('SET', OBSERVED, observed, 'PX', KEEP_MS)
local victims = reclaim()
if #victims > 0 then
  save()
end
return victims
