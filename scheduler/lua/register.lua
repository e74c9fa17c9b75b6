-- Enter a live holder's permit again after the ledger lost its memory: its request is in flight, so it counts.
-- Batch may do so only until the new ledger has settled; later its slot may be another's. When it began is not known:
-- nothing waits for its first token. Answers the permit's standing.
local token, kind = ARGV[FIRST], ARGV[FIRST + 1]
epoch()
if record then
  return standing(read(token, record))
end
if kind == 'b' and NOW >= settled_at then
  return standing(nil)
end
-- In the hash before others are asked back: it may be one of them.
call('HSET', PERMITS, token, add(kind, '1', ARGV[FIRST + 3] + 0, ARGV[FIRST + 2] + 0, ARGV[FIRST + 4] + 0))
reclaim()
save()
return standing(read(token, call('HGET', PERMITS, token)))
