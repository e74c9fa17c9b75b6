-- Put a limit in force for a while. Answers 0 when a newer leader has spoken.
local slots, tokens, prefill, ttl_ms, leader, outlook, note = unpack(ARGV, FIRST)
epoch()
if tonumber(leader) < tonumber(call('HGET', EPOCH, 'leader') or 0) then
  return 0
end
call('HSET', EPOCH, 'leader', leader)
local numbers = {}
for number in outlook:gmatch('%d+') do
  numbers[#numbers + 1] = number + 0
end
-- Eight of them, how many rises follow, and so many as there are horizons.
table.insert(numbers, 9, math.min((#numbers - 8) / 2, HORIZONS))
for n = #numbers + 1, 9 + 2 * HORIZONS do
  numbers[n] = 0
end
call('SET', LIMIT, pack('<Bddd', LIMIT_VERSION, NOW + ttl_ms, slots + 0, tokens + 0)
  .. pack(OUTLOOK, prefill + 0, unpack(numbers)) .. note, 'PX', KEEP_MS)
return 1
