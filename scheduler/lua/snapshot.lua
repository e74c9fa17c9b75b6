-- Read everything at one moment. Answers: numbers (clock, settled at, totals, the limit in force, observed load,
-- pause, beat, oldest interactive request without a first token), epoch, recent first tokens, the note, and the rises of the chat.
local id, settled_at = epoch()
local numbers = { NOW, settled_at, totals() }
local slots, tokens, prefill, outlook = limit(settled_at)
local published = redis.call('HMGET', LIMIT, 'until', 'note')
local seen = redis.call('HMGET', OBSERVED, 'slots', 'tokens', 'until')
local oldest = NOW
if T.w_slots > 0 then
  for _, token in ipairs(redis.call('HKEYS', PERMITS)) do
    local permit = read(token)
    if permit.kind == 'i' and not permit.first then
      oldest = math.min(oldest, permit.at)
    end
  end
end
for _, value in ipairs({
  slots, tokens, prefill, outlook.high_slots, outlook.high_tokens, outlook.arrivals, outlook.request_tokens,
  outlook.reserve, outlook.rate, outlook.ahead, outlook.beside, published[1] or 0, seen[1] or 0, seen[2] or 0, seen[3] or 0,
  redis.call('GET', PAUSED) or 0, redis.call('GET', BEAT) or -1, NOW - oldest,
}) do
  numbers[#numbers + 1] = tonumber(value)
end
save()
return { numbers, id, redis.call('LRANGE', FIRSTS, 0, RECENT - 1), published[2] or '', outlook.rises }
