-- Read everything at one moment. Answers: numbers (clock, settled at, counts, the limit in force, observed load,
-- pause, beat, oldest interactive request without a first token), epoch, recent first tokens, the note, and the rises of the chat.
epoch()
local of = { limit() }
local published_until, note = 0, ''
if published and published:byte() == LIMIT_VERSION then
  local _, until_ms = unpacked('<Bd', published)
  published_until, note = until_ms, published:sub(OUTLOOK_AT + 8 * #OUTLOOK - 8)
end
local rises = {}
for n = 13, 12 + 2 * of[12] do
  rises[#rises + 1] = of[n]
end
local seen_slots, seen_tokens, seen_until = 0, 0, 0
if observed then
  seen_slots, seen_tokens, seen_until = unpacked(SEEN, observed)
end
local oldest = NOW
if w_slots > 0 then
  oldest = math.min(oldest, (call('ZRANGE', RANKS, 1, 1, 'WITHSCORES')[2] or NOW) + 0)
end
return {
  {
    NOW, settled_at, i_slots, i_tokens, b_slots, b_tokens, r_slots, r_tokens, p_tokens, e_ms, w_slots, w_since, batch_at,
    order, kept_at, arrivals, refused, revoked, firsts, of[1], of[2], of[3], of[4], of[5], of[6], of[7], of[8], of[9],
    of[10], of[11], published_until, seen_slots, seen_tokens, seen_until, (paused or 0) + 0,
    tonumber(call('GET', BEAT) or -1), NOW - oldest,
  },
  id, call('LRANGE', FIRSTS, 0, RECENT - 1), note, rises,
}
