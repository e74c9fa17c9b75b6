-- Put a limit in force for a while. Answers 0 when a newer leader has spoken.
local slots, tokens, prefill, ttl_ms, leader, outlook, note = unpack(ARGV, FIRST)
epoch()
if tonumber(leader) < tonumber(redis.call('HGET', EPOCH, 'leader') or 0) then
  return 0
end
redis.call('HSET', EPOCH, 'leader', leader)
redis.call('HSET', LIMIT, 'slots', slots, 'tokens', tokens, 'prefill', prefill, 'until', NOW + tonumber(ttl_ms),
  'outlook', outlook, 'note', note)
redis.call('PEXPIRE', LIMIT, KEEP_MS)
return 1
