-- Put in front of every verb: the pool's state, its clock and the one rule for what is asked back.
-- The rule stands a second time in scheduler/book.py; a property test holds the two together.
local PERMITS, EXPIRY, TOTALS, LIMIT, EPOCH, OBSERVED, PAUSED, FIRSTS, BEAT, CHANNEL = unpack(KEYS)
local SLOTS, TOKENS = tonumber(ARGV[1]), tonumber(ARGV[2])
local OWN_I_SLOTS, OWN_I_TOKENS = tonumber(ARGV[3]), tonumber(ARGV[4])
local FLOOR_SLOTS, FLOOR_TOKENS = tonumber(ARGV[5]), tonumber(ARGV[6])
local LEASE_MS = tonumber(ARGV[7])
local FIRST = 8 -- the verb's own arguments begin here
-- Keys without traffic go away by themselves; far longer than any permit may last without a renewal.
local KEEP_MS = 600000

local NOW = now_ms()

-- i: interactive, b: batch (what is being reclaimed too), r: of that being reclaimed, p: batch prompt tokens without a
-- first token, e: how long batch's requests are expected to take (ms, together), w: interactive requests without a first
-- token and since when there are any, batch_at: when batch was last admitted,
-- order: permits ever given, kept_at: when the keys of the members were last kept from expiring; counters, ever:
-- arrivals (interactive admitted), refused (interactive), revoked (batch), firsts (first tokens)
local FIELDS = {
  'i_slots', 'i_tokens', 'b_slots', 'b_tokens', 'r_slots', 'r_tokens', 'p_tokens', 'e_ms', 'w_slots', 'w_since', 'batch_at',
  'order', 'kept_at', 'arrivals', 'refused', 'revoked', 'firsts',
}
local T = {}
local totals = string.gmatch(redis.call('GET', TOTALS) or '', '%S+')
for _, name in ipairs(FIELDS) do
  T[name] = tonumber(totals() or 0)
end

-- A new ledger cannot know what an earlier one gave: until one lease has passed, batch is at its floor.
local function epoch()
  local known = redis.call('HMGET', EPOCH, 'id', 'settled_at')
  if known[1] then
    return known[1], tonumber(known[2])
  end
  local id, settled_at = string.format('%d', NOW), NOW + LEASE_MS
  redis.call('HSET', EPOCH, 'id', id, 'settled_at', settled_at)
  return id, settled_at
end

-- A permit is one string: kind, tokens, prompt tokens, order, acquired at (ms), expected to take (ms, 0: unknown),
-- first token (0|1), standing (h|r|d).
local function read(token)
  local record = redis.call('HGET', PERMITS, token)
  if not record then
    return nil
  end
  local kind, tokens, prompt, order, at, expected, first, standing =
    string.match(record, '(%a) (%d+) (%d+) (%d+) (%d+) (%d+) (%d) (%a)')
  return {
    token = token, kind = kind, tokens = tonumber(tokens), prompt = tonumber(prompt), order = tonumber(order),
    at = tonumber(at), expected = tonumber(expected), first = first == '1', standing = standing,
  }
end

local function count(permit, sign)
  local k = permit.kind
  T[k .. '_slots'] = T[k .. '_slots'] + sign
  T[k .. '_tokens'] = T[k .. '_tokens'] + sign * permit.tokens
  if k == 'b' then
    T.e_ms = T.e_ms + sign * permit.expected
  end
  if k == 'b' and not permit.first then
    T.p_tokens = T.p_tokens + sign * permit.prompt
  elseif k == 'i' and not permit.first then
    T.w_slots = T.w_slots + sign
  end
  if permit.standing ~= 'h' then
    T.r_slots = T.r_slots + sign
    T.r_tokens = T.r_tokens + sign * permit.tokens
  end
end

local function write(permit)
  redis.call('HSET', PERMITS, permit.token, table.concat({
    permit.kind, string.format('%d', permit.tokens), string.format('%d', permit.prompt),
    string.format('%d', permit.order), string.format('%d', permit.at), string.format('%d', permit.expected),
    permit.first and '1' or '0', permit.standing,
  }, ' '))
  count(permit, 1)
end

local function forget(permit)
  redis.call('HDEL', PERMITS, permit.token)
  redis.call('ZREM', EXPIRY, permit.token)
  count(permit, -1)
end

local function add(token, kind, tokens, prompt, expected, first)
  if T.i_slots + T.b_slots == 0 then
    T.kept_at = NOW - KEEP_MS -- the first member makes the keys anew, and new keys never expire
  end
  if kind == 'i' and not first and T.w_slots == 0 then
    T.w_since = NOW
  end
  T.order = T.order + 1
  write({ token = token, kind = kind, tokens = tokens, prompt = prompt, order = T.order, at = NOW,
    expected = expected, first = first, standing = 'h' })
  redis.call('ZADD', EXPIRY, NOW + LEASE_MS, token)
end

local function change(permit, field, value)
  count(permit, -1)
  permit[field] = value
  write(permit)
end

local function save()
  if math.abs(NOW - T.kept_at) >= KEEP_MS / 10 then -- not at every call; a clock may also be set back
    T.kept_at = NOW
    redis.call('PEXPIRE', PERMITS, KEEP_MS)
    redis.call('PEXPIRE', EXPIRY, KEEP_MS)
    redis.call('PEXPIRE', FIRSTS, KEEP_MS)
  end
  local values = {}
  for n, name in ipairs(FIELDS) do
    values[n] = string.format('%d', T[name])
  end
  redis.call('SET', TOTALS, table.concat(values, ' '), 'PX', KEEP_MS)
end

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
local NO_OUTLOOK = {
  high_slots = 0, high_tokens = 0, arrivals = 0, request_tokens = 0, reserve = 0, rate = 0, ahead = 0, beside = 0,
  rises = {},
}
local function limit(settled_at)
  local published = redis.call('HMGET', LIMIT, 'slots', 'tokens', 'prefill', 'until', 'outlook')
  local numbers = {}
  for number in string.gmatch(published[5] or '', '%d+') do
    numbers[#numbers + 1] = tonumber(number)
  end
  -- One with fewer numbers, or with half a pair of rises, is of another version: as good as none.
  if not published[1] or #numbers < 8 or #numbers % 2 == 1 or NOW >= tonumber(published[4]) or NOW < settled_at then
    return FLOOR_SLOTS, FLOOR_TOKENS, FLOOR_TOKENS, NO_OUTLOOK
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

local function standing(permit)
  if not permit then
    return 'gone'
  end
  return permit.standing == 'r' and 'revoked' or 'held'
end

local expired = redis.call('ZRANGEBYSCORE', EXPIRY, '-inf', NOW)
for _, token in ipairs(expired) do
  forget(read(token))
end
if #expired > 0 then
  save() -- whatever the verb does: what is gone from the members must be gone from the totals
end
