-- Admit one request, or say why not. Answers { epoch, '', victims ... } or { epoch, reason, retry_after_ms }.
local token, kind = ARGV[FIRST], ARGV[FIRST + 1]
local prompt, tokens, expected = tonumber(ARGV[FIRST + 2]), tonumber(ARGV[FIRST + 3]), tonumber(ARGV[FIRST + 4])
local is_streamed = ARGV[FIRST + 5] == '1'
local id, settled_at = epoch()

local function refuse_interactive()
  local most_slots, most_tokens = SLOTS - FLOOR_SLOTS, TOKENS - FLOOR_TOKENS
  if most_slots < 1 or tokens > most_tokens then
    return 'too_large'
  end
  local slots, used = interactive_use()
  if slots + 1 > most_slots or used + tokens > most_tokens then
    return 'capacity'
  end
end

-- How far chat rises within so many seconds: linear between the horizons, level beyond the last.
local function rise(rises, seconds)
  local before_s, before_slots, before_tokens = 0, 0, 0
  for n = 1, math.min(math.floor(#rises / 2), #HORIZONS_SECONDS) do
    local slots, more = rises[2 * n - 1], rises[2 * n]
    if seconds < HORIZONS_SECONDS[n] then
      local share = (seconds - before_s) / (HORIZONS_SECONDS[n] - before_s)
      return before_slots + (slots - before_slots) * share, before_tokens + (more - before_tokens) * share
    end
    before_s, before_slots, before_tokens = HORIZONS_SECONDS[n], slots, more
  end
  return before_slots, before_tokens
end

-- The most batch may hold, this request included, for the chat to find its room: scheduler/headroom.py.
local function headroom(chat_slots, chat_tokens)
  local most_slots, most_tokens, prefill, outlook = limit(settled_at)
  local expected_s = expected / 1000
  local rise_slots, rise_tokens = rise(outlook.rises, expected_s)
  local mean = outlook.arrivals / 1000 * math.min(expected_s / math.max(1, T.b_slots), DRAIN_SECONDS)
  local reserve = math.max(outlook.reserve, mean + RESERVE_DEVIATIONS * math.sqrt(mean))
  local later_slots = math.min(chat_slots + rise_slots, math.max(chat_slots, outlook.high_slots))
  local later_tokens = math.min(chat_tokens + rise_tokens, math.max(chat_tokens, outlook.high_tokens))
  local slots = math.floor(SLOTS - later_slots - reserve)
  local room = math.floor(TOKENS - later_tokens - reserve * outlook.request_tokens)
  return math.max(FLOOR_SLOTS, math.min(slots, most_slots)), math.max(FLOOR_TOKENS, math.min(room, most_tokens)), prefill,
    outlook.beside
end

local function refuse_batch()
  if SLOTS - OWN_I_SLOTS < 1 or tokens > TOKENS - OWN_I_TOKENS then
    return 'too_large'
  end
  local paused_until = tonumber(redis.call('GET', PAUSED) or 0)
  if NOW < paused_until then
    return 'paused', paused_until - NOW
  end
  local wanted_slots, wanted_tokens = T.b_slots + 1, T.b_tokens + tokens
  local chat_slots, chat_tokens = interactive_use()
  if wanted_slots > SLOTS - math.max(chat_slots, OWN_I_SLOTS)
    or wanted_tokens > TOKENS - math.max(chat_tokens, OWN_I_TOKENS) then
    return 'protected'
  end
  local room_slots, room_tokens, prefill, beside = headroom(chat_slots, chat_tokens)
  -- When batch holds nothing, one ticket larger than the limit may run: else it never would.
  if (wanted_slots > room_slots or wanted_tokens > room_tokens) and T.b_slots > 0 then
    return 'limit'
  end
  local is_above_floor = wanted_slots > FLOOR_SLOTS or wanted_tokens > FLOOR_TOKENS
  local with_it = T.p_tokens + prompt
  if T.w_slots > 0 and with_it > beside and (is_above_floor or NOW - T.w_since < FLOOR_HOLD_MS) then
    return 'first_token'
  end
  if T.p_tokens > 0 and with_it > prefill and (is_above_floor or NOW - T.batch_at < FLOOR_HOLD_MS) then
    return 'prefill'
  end
end

-- The same ask again, after an answer that was lost on the way: it was admitted.
if read(token) then
  save()
  return { id, '' }
end
local reason, retry_after_ms
if kind == 'b' then
  reason, retry_after_ms = refuse_batch()
else
  reason = refuse_interactive()
  if reason == 'capacity' then
    ask_back(0, 0, 0) -- before chat asks again, batch is at its floor: whoever is about to end too
  end
end
if reason then
  save()
  return { id, reason, retry_after_ms or -1 }
end
add(token, kind, tokens, prompt, expected, not is_streamed)
local victims = {}
if kind == 'b' then
  T.batch_at = NOW
else
  T.arrivals = T.arrivals + 1
  victims = reclaim()
  for _, victim in ipairs(clear_the_way(settled_at)) do
    victims[#victims + 1] = victim
  end
end
save()
return { id, '', unpack(victims) }
