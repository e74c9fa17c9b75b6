-- Admit one request, or say why not. Answers { epoch, '', victims ... } or { epoch, reason, retry_after_ms }.
local token, kind = ARGV[FIRST], ARGV[FIRST + 1]
local prompt, tokens = tonumber(ARGV[FIRST + 2]), tonumber(ARGV[FIRST + 3])
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

local function limit()
  local published = redis.call('HMGET', LIMIT, 'slots', 'tokens', 'prefill', 'until')
  if not published[1] or NOW >= tonumber(published[4]) or NOW < settled_at then
    return FLOOR_SLOTS, FLOOR_TOKENS, FLOOR_TOKENS
  end
  local slots = math.max(FLOOR_SLOTS, math.min(tonumber(published[1]), SLOTS - OWN_I_SLOTS))
  local most = math.max(FLOOR_TOKENS, math.min(tonumber(published[2]), TOKENS - OWN_I_TOKENS))
  return slots, most, tonumber(published[3])
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
  local in_use_slots, in_use_tokens = interactive_use()
  if wanted_slots > SLOTS - math.max(in_use_slots, OWN_I_SLOTS)
    or wanted_tokens > TOKENS - math.max(in_use_tokens, OWN_I_TOKENS) then
    return 'protected'
  end
  local limit_slots, limit_tokens, prefill = limit()
  -- When batch holds nothing, one ticket larger than the limit may run: else it never would.
  if (wanted_slots > limit_slots or wanted_tokens > limit_tokens) and T.b_slots > 0 then
    return 'limit'
  end
  if T.p_tokens > 0 and T.p_tokens + prompt > prefill then
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
end
if reason then
  save()
  return { id, reason, retry_after_ms or -1 }
end
add(token, kind, tokens, prompt)
local victims = {}
if kind == 'i' then
  victims = reclaim()
end
save()
return { id, '', unpack(victims) }
