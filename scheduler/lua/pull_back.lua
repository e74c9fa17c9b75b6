-- Put in front of the verbs that may ask permits back: the one rule for that.
-- It stands a second time in scheduler/book.py; a property test holds the two together.


local SLICE = 1000 -- values handed to one command: Lua's stack bears no more than some thousands

-- The permits of such tokens, in their order.
local function read_all(tokens)
  local permits = {}
  for from = 1, #tokens, SLICE do
    local records = call('HMGET', PERMITS, unpack(tokens, from, math.min(from + SLICE - 1, #tokens)))
    for n, of in ipairs(records) do
      local permit = read(tokens[from + n - 1], of)
      -- What is late by so much may well take as much again.
      permit.left = permit.expected > 0 and math.abs(permit.at + permit.expected - NOW) or math.huge
      permits[#permits + 1] = permit
    end
  end
  return permits
end

-- What batch holds and was not asked back, cheapest to lose first: the youngest without a first token. No more is read
-- than is asked for, a few at a time.
local function own_requests()
  local held, from, few, permits, n = b_slots - r_slots, 0, 8, {}, 0
  return function()
    n = n + 1
    if n > #permits and from < held then
      permits, n = read_all(call('ZREVRANGE', RANKS, from, math.min(from + few, held) - 1)), 1
      from, few = from + few, math.min(2 * few, SLICE)
    end
    return permits[n]
  end
end

-- Of these, what ends within so many milliseconds, or is late by no more.
local function ending(within_ms)
  local marked = call('ZRANGEBYSCORE', RANKS, ENDS + NOW - within_ms, ENDS + NOW + within_ms)
  for n, member in ipairs(marked) do
    marked[n] = member:sub(#END + 1)
  end
  return read_all(marked)
end

local function revoke(victims)
  for n, permit in ipairs(victims) do
    call('HSET', PERMITS, permit.token, change(permit, 'standing', 'r'))
    call('ZREM', RANKS, permit.token, END .. permit.token)
    victims[n] = permit.token
  end
  revoked = revoked + #victims
  if #victims > 0 then
    -- A hint: a subscriber that is reconnecting misses it, and learns the same from its next renewal.
    call('PUBLISH', CHANNEL, table.concat(victims, ' '))
  end
  return victims
end

-- Ask back what batch holds over a room, or over its floor where that is more, and what does not end by itself soon.
local function ask_back(room_slots, room_tokens, spare_ms)
  local slots, tokens = b_slots - r_slots, b_tokens - r_tokens
  local leaving_slots, leaving_tokens = 0, 0
  local function over()
    return slots - leaving_slots > math.max(room_slots, FLOOR_SLOTS)
      or tokens - leaving_tokens > math.max(room_tokens, FLOOR_TOKENS)
  end
  local victims = {}
  if not over() then
    return victims
  end
  for _, permit in ipairs(ending(math.min(SOON_MS, spare_ms))) do
    leaving_slots, leaving_tokens = leaving_slots + 1, leaving_tokens + permit.tokens
  end
  for permit in own_requests() do
    if not over() then
      break
    end
    if permit.left > spare_ms then
      slots, tokens = slots - 1, tokens - permit.tokens
      victims[#victims + 1] = permit
    end
  end
  return revoke(victims)
end

local function reclaim()
  local in_use_slots, in_use_tokens = interactive_use()
  return ask_back(SLOTS - in_use_slots, TOKENS - in_use_tokens, SPARE_MS)
end

-- Ask back the prompts that a chat request would wait behind, beyond a few: what is done of them is guessed by age.
local function clear_the_way()
  if p_tokens == 0 then
    return
  end
  local _, _, _, _, _, _, _, _, rate, most_ahead = limit()
  if rate == 0 or p_tokens <= most_ahead then
    return
  end
  local function to_go(permit)
    return math.max(0, permit.prompt - math.floor((NOW - permit.at) * rate / 1000))
  end
  local slots, tokens, ahead, victims = b_slots - r_slots, b_tokens - r_tokens, 0, {}
  local prefilling = read_all(call('ZREVRANGEBYSCORE', RANKS, math.huge, PREFILLING))
  for _, permit in ipairs(prefilling) do
    ahead = ahead + to_go(permit)
  end
  for _, permit in ipairs(prefilling) do
    if ahead <= most_ahead then
      break
    end
    if permit.left > SPARE_MS and slots - 1 >= FLOOR_SLOTS and tokens - permit.tokens >= FLOOR_TOKENS then
      slots, tokens, ahead = slots - 1, tokens - permit.tokens, ahead - to_go(permit)
      victims[#victims + 1] = permit
    end
  end
  return revoke(victims)
end
