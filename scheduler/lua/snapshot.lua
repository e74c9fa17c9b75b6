-- Read everything at one moment. Answers totals, then the limit, epoch, observed load, pause and interactive waiting.
local id, settled_at = epoch()
local answer = { NOW, id, settled_at }
for _, name in ipairs(FIELDS) do
  answer[#answer + 1] = T[name]
end
local function append(values)
  for n = 1, values.n do
    answer[#answer + 1] = tonumber(values[n] or 0)
  end
end
local published = redis.call('HMGET', LIMIT, 'slots', 'tokens', 'prefill', 'until')
published.n = 4
append(published)
local seen = redis.call('HMGET', OBSERVED, 'slots', 'tokens', 'until')
seen.n = 3
append(seen)
append({ redis.call('GET', PAUSED), n = 1 })
local waiting, oldest = 0, NOW
for _, token in ipairs(redis.call('HKEYS', PERMITS)) do
  local permit = read(token)
  if permit.kind == 'i' and not permit.first then
    waiting, oldest = waiting + 1, math.min(oldest, tonumber(permit.at))
  end
end
answer[#answer + 1] = waiting
answer[#answer + 1] = NOW - oldest
save()
return answer
