-- Enter a live holder's permit again after the ledger lost its memory: its request is in flight, so it counts.
-- Batch may do so only until the new ledger has settled; later its slot may be another's. When it began is not known:
-- nothing waits for its first token. Answers the permit's standing.
local token, kind, prompt, tokens, expected = unpack(ARGV, FIRST)
local _, settled_at = epoch()
if not read(token) and (kind == 'i' or NOW < settled_at) then
  add(token, kind, tonumber(tokens), tonumber(prompt), tonumber(expected), true)
  reclaim()
end
save()
return standing(read(token))
