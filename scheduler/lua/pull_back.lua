-- Put in front of the verbs that look at the limit or may ask permits back: the one rule for that.
-- It stands a second time in scheduler/book.py; a property test holds the two together.

-- Interactive's own count or what was observed at the engine, whichever is larger.
local function interactive_use()
  local slots, tokens = T.i_slots, T.i_tokens
  local seen = redis.call('HMGET', OBSERVED, 'slots', 'tokens', 'until')
  if seen[1] and NOW < tonumber(seen[3]) then
    slots, tokens = math.max(slots, tonumber(seen[1])), math.max(tokens, tonumber(seen[2]))
  end
  return slots, tokens
end

-- The limit in force: slots, tokens, prefill tokens, and what is expected of the chat.
local function limit(settled_at)
  local published = redis.call('HMGET', LIMIT, 'slots', 'tokens', 'prefill', 'until', 'outlook')
  local numbers = {}
  for number in string.gmatch(published[5] or '', '%d+') do
    numbers[#numbers + 1] = tonumber(number)
  end
  -- One with fewer numbers, or with half a pair of rises, is of another version: as good as none.
  if not published[1] or #numbers < 8 or #numbers % 2 == 1 or NOW >= tonumber(published[4]) or NOW < settled_at then
    return FLOOR_SLOTS, FLOOR_TOKENS, FLOOR_TOKENS, {
      high_slots = 0, high_tokens = 0, arrivals = 0, request_tokens = 0, reserve = 0, rate = 0, ahead = 0, beside = 0,
      rises = {},
    }
  end
  local slots = math.max(FLOOR_SLOTS, math.min(tonumber(published[1]), SLOTS - OWN_I_SLOTS))
  local most = math.max(FLOOR_TOKENS, math.min(tonumber(published[2]), TOKENS - OWN_I_TOKENS))
  return slots, most, tonumber(published[3]), {
    high_slots = numbers[1], high_tokens = numbers[2], arrivals = numbers[3], request_tokens = numbers[4],
    reserve = numbers[5], rate = numbers[6], ahead = numbers[7], beside = numbers[8], rises = { unpack(numbers, 9) },
  }
end

-- What batch holds and was not asked back, cheapest to lose first: the youngest without a first token.
local function own_requests()
  local own = {}
  for _, token in ipairs(redis.call('HKEYS', PERMITS)) do
    local permit = read(token)
    if permit.kind == 'b' and permit.standing == 'h' then
      -- What is late by so much may well take as much again.
      permit.left = permit.expected > 0 and math.abs(permit.at + permit.expected - NOW) or math.huge
      own[#own + 1] = permit
    end
  end
  table.sort(own, function(a, b)
    if a.first ~= b.first then
      return b.first
    end
    return a.order > b.order
  end)
  return own
end

local function revoke(victims)
  for n, permit in ipairs(victims) do
    change(permit, 'standing', 'r')
    victims[n] = permit.token
  end
  T.revoked = T.revoked + #victims
  if #victims > 0 then
    -- A hint: a subscriber that is reconnecting misses it, and learns the same from its next renewal.
    redis.call('PUBLISH', CHANNEL, table.concat(victims, ' '))
  end
  return victims
end

-- Ask back what batch holds over a room, or over its floor where that is more, and what does not end by itself soon.
local function ask_back(room_slots, room_tokens, spare_ms)
  local slots, tokens = T.b_slots - T.r_slots, T.b_tokens - T.r_tokens
  local leaving_slots, leaving_tokens = 0, 0
  local function over()
    return slots - leaving_slots > math.max(room_slots, FLOOR_SLOTS)
      or tokens - leaving_tokens > math.max(room_tokens, FLOOR_TOKENS)
  end
  local victims = {}
  if not over() then
    return victims
  end
  local own = own_requests()
  for _, permit in ipairs(own) do
    if permit.left <= math.min(SOON_MS, spare_ms) then
      leaving_slots, leaving_tokens = leaving_slots + 1, leaving_tokens + permit.tokens
    end
  end
  for _, permit in ipairs(own) do
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
local function clear_the_way(settled_at)
  if T.p_tokens == 0 then
    return {}
  end
  local _, _, _, outlook = limit(settled_at)
  if outlook.rate == 0 or T.p_tokens <= outlook.ahead then
    return {}
  end
  local function to_go(permit)
    return math.max(0, permit.prompt - math.floor((NOW - permit.at) * outlook.rate / 1000))
  end
  local slots, tokens, ahead, victims = T.b_slots - T.r_slots, T.b_tokens - T.r_tokens, 0, {}
  local own = own_requests()
  for _, permit in ipairs(own) do
    ahead = ahead + (permit.first and 0 or to_go(permit))
  end
  for _, permit in ipairs(own) do
    if permit.first or ahead <= outlook.ahead then
      break
    end
    if permit.left > SPARE_MS and slots - 1 >= FLOOR_SLOTS and tokens - permit.tokens >= FLOOR_TOKENS then
      slots, tokens, ahead = slots - 1, tokens - permit.tokens, ahead - to_go(permit)
      victims[#victims + 1] = permit
    end
  end
  return revoke(victims)
end
