-- Admit a request of batch, or say why not. Answers the epoch's id, or { reason, retry_after_ms }.
local prompt, tokens, expected = ARGV[FIRST + 1] + 0, ARGV[FIRST + 2] + 0, ARGV[FIRST + 3] + 0
epoch()

-- How far chat rises within so many seconds: linear between the horizons, level beyond the last. `of` are the answers of
-- `limit`, the rises from the 13th on.
local function rise(of, seconds)
  local before_s, before_slots, before_tokens = 0, 0, 0
  for n = 1, of[12] do
    local slots, more, horizon_s = of[11 + 2 * n], of[12 + 2 * n], HORIZONS_SECONDS[n]
    if seconds < horizon_s then
      local share = (seconds - before_s) / (horizon_s - before_s)
      return before_slots + (slots - before_slots) * share, before_tokens + (more - before_tokens) * share
    end
    before_s, before_slots, before_tokens = horizon_s, slots, more
  end
  return before_slots, before_tokens
end

-- The most batch may hold, this request included, for the chat to find its room: scheduler/headroom.py. Then the prefill
-- budget, and that beside a chat request that waits.
local function headroom(chat_slots, chat_tokens)
  local of = { limit() }
  local most_slots, most_tokens, prefill, high_slots, high_tokens, arrivals, request_tokens, least, _, _, beside =
    unpack(of)
  local expected_s = expected / 1000
  local rise_slots, rise_tokens = rise(of, expected_s)
  local mean = arrivals / 1000 * math.min(expected_s / math.max(1, b_slots), DRAIN_SECONDS)
  local reserve = math.max(least, mean + RESERVE_DEVIATIONS * math.sqrt(mean))
  local later_slots = math.min(chat_slots + rise_slots, math.max(chat_slots, high_slots))
  local later_tokens = math.min(chat_tokens + rise_tokens, math.max(chat_tokens, high_tokens))
  local slots = math.floor(SLOTS - later_slots - reserve)
  local room = math.floor(TOKENS - later_tokens - reserve * request_tokens)
  return math.max(FLOOR_SLOTS, math.min(slots, most_slots)), math.max(FLOOR_TOKENS, math.min(room, most_tokens)), prefill,
    beside
end

local function refused()
  if SLOTS - OWN_I_SLOTS < 1 or tokens > TOKENS - OWN_I_TOKENS then
    return 'too_large'
  end
  if paused and NOW < paused + 0 then
    return 'paused', paused - NOW
  end
  local wanted_slots, wanted_tokens = b_slots + 1, b_tokens + tokens
  local chat_slots, chat_tokens = interactive_use()
  if wanted_slots > SLOTS - math.max(chat_slots, OWN_I_SLOTS)
    or wanted_tokens > TOKENS - math.max(chat_tokens, OWN_I_TOKENS) then
    return 'protected'
  end
  local room_slots, room_tokens, prefill, beside = headroom(chat_slots, chat_tokens)
  -- When batch holds nothing, one ticket larger than the limit may run: else it never would.
  if (wanted_slots > room_slots or wanted_tokens > room_tokens) and b_slots > 0 then
    return 'limit'
  end
  local is_above_floor = wanted_slots > FLOOR_SLOTS or wanted_tokens > FLOOR_TOKENS
  local with_it = p_tokens + prompt
  if w_slots > 0 and with_it > beside and (is_above_floor or NOW - w_since < FLOOR_HOLD_MS) then
    return 'first_token'
  end
  if p_tokens > 0 and with_it > prefill and (is_above_floor or NOW - batch_at < FLOOR_HOLD_MS) then
    return 'prefill'
  end
end

-- The same ask again, after an answer that was lost on the way: it was admitted.
if not record then
  local reason, retry_after_ms = refused()
  if reason then
    return { reason, retry_after_ms or -1 }
  end
  batch_at = NOW
  save(ARGV[FIRST], add('b', ARGV[FIRST + 4], tokens, prompt, expected))
end
return id
