-- Put in front of the verbs that look at what is published and observed: the pool's capacity, and what is in force now.
local _, SLOTS, TOKENS, OWN_I_SLOTS, OWN_I_TOKENS, FLOOR_SLOTS, FLOOR_TOKENS = unpacked('<ddddddd', ARGV[1])

local published, observed, paused = unpack(call('MGET', LIMIT, OBSERVED, PAUSED))

-- Nothing is announced for so long: it was before the clock was set back. Gone for good, or it would be believed again
-- when that time comes.
local LATEST_END = NOW + LONGEST_MS
if published and published:byte() == LIMIT_VERSION and unpacked('<d', published, 2) > LATEST_END then
  call('DEL', LIMIT)
  published = false
end
if observed and unpacked('<d', observed, 17) > LATEST_END then
  call('DEL', OBSERVED)
  observed = false
end
if paused and paused + 0 > LATEST_END then
  call('DEL', PAUSED)
  paused = false
end

-- Interactive's own count or what was observed at the engine, whichever is larger.
local function interactive_use()
  if observed then
    local slots, tokens, until_ms = unpacked(SEEN, observed)
    if NOW < until_ms then
      return math.max(i_slots, slots), math.max(i_tokens, tokens)
    end
  end
  return i_slots, i_tokens
end

-- The limit in force: slots, tokens, prefill tokens, and what is expected of the chat, in the order of `publish`.
local function limit()
  if published and published:byte() == LIMIT_VERSION and NOW >= settled_at then
    local version, until_ms, slots, tokens = unpacked('<Bddd', published)
    if NOW < until_ms then
      return math.max(FLOOR_SLOTS, math.min(slots, SLOTS - OWN_I_SLOTS)),
        math.max(FLOOR_TOKENS, math.min(tokens, TOKENS - OWN_I_TOKENS)), unpacked(OUTLOOK, published, OUTLOOK_AT)
    end
  end
  return FLOOR_SLOTS, FLOOR_TOKENS, FLOOR_TOKENS, 0, 0, 0, 0, 0, 0, 0, 0, 0
end
