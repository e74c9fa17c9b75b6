-- Put in front of every verb: the pool's state, its clock and the one rule for what is asked back.
-- The rule stands a second time in scheduler/book.py; a property test holds the two together.
local PERMITS, EXPIRY, TOTALS, LIMIT, EPOCH, OBSERVED, PAUSED, CHANNEL = unpack(KEYS)
local SLOTS, TOKENS = tonumber(ARGV[1]), tonumber(ARGV[2])
local OWN_I_SLOTS, OWN_I_TOKENS = tonumber(ARGV[3]), tonumber(ARGV[4])
local FLOOR_SLOTS, FLOOR_TOKENS = tonumber(ARGV[5]), tonumber(ARGV[6])
local LEASE_MS = tonumber(ARGV[7])
local FIRST = 8 -- the verb's own arguments begin here
-- Keys without traffic go away by themselves; far longer than any permit may last without a renewal.
local KEEP_MS = 600000

local NOW = now_ms()

-- i: interactive, b: batch (what is being reclaimed too), r: of that being reclaimed, p: batch prompt tokens without a
-- first token, order: permits ever given, kept_at: when the keys of the members were last kept from expiring
local FIELDS = { 'i_slots', 'i_tokens', 'b_slots', 'b_tokens', 'r_slots', 'r_tokens', 'p_tokens', 'order', 'kept_at' }
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

-- A permit is one string: kind, tokens, prompt tokens, order, acquired at (ms), first token (0|1), standing (h|r|d).
local function read(token)
  local record = redis.call('HGET', PERMITS, token)
  if not record then
    return nil
  end
  local kind, tokens, prompt, order, at, first, standing = string.match(record, '(%a) (%d+) (%d+) (%d+) (%d+) (%d) (%a)')
  return {
    token = token, kind = kind, tokens = tonumber(tokens), prompt = tonumber(prompt), order = tonumber(order),
    at = at, first = first == '1', standing = standing,
  }
end

local function count(permit, sign)
  local k = permit.kind
  T[k .. '_slots'] = T[k .. '_slots'] + sign
  T[k .. '_tokens'] = T[k .. '_tokens'] + sign * permit.tokens
  if k == 'b' and not permit.first then
    T.p_tokens = T.p_tokens + sign * permit.prompt
  end
  if permit.standing ~= 'h' then
    T.r_slots = T.r_slots + sign
    T.r_tokens = T.r_tokens + sign * permit.tokens
  end
end

local function write(permit)
  redis.call('HSET', PERMITS, permit.token, table.concat({
    permit.kind, string.format('%d', permit.tokens), string.format('%d', permit.prompt),
    string.format('%d', permit.order), permit.at, permit.first and '1' or '0', permit.standing,
  }, ' '))
  count(permit, 1)
end

local function forget(permit)
  redis.call('HDEL', PERMITS, permit.token)
  redis.call('ZREM', EXPIRY, permit.token)
  count(permit, -1)
end

local function add(token, kind, tokens, prompt)
  if T.i_slots + T.b_slots == 0 then
    T.kept_at = NOW - KEEP_MS -- the first member makes the keys anew, and new keys never expire
  end
  T.order = T.order + 1
  write({ token = token, kind = kind, tokens = tokens, prompt = prompt, order = T.order,
    at = string.format('%d', NOW), first = false, standing = 'h' })
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

-- Revoke the youngest without a first token first, while batch holds over its floor and something is in excess.
-- `excess(slots, tokens)` says by how much, given what batch holds.
local function ask_back(excess)
  local slots, tokens = T.b_slots - T.r_slots, T.b_tokens - T.r_tokens
  local function over()
    local over_slots, over_tokens = excess(slots, tokens)
    return math.min(over_slots, slots - FLOOR_SLOTS) > 0 or math.min(over_tokens, tokens - FLOOR_TOKENS) > 0
  end
  local victims = {}
  if not over() then
    return victims
  end
  local candidates = {}
  for _, token in ipairs(redis.call('HKEYS', PERMITS)) do
    local permit = read(token)
    if permit.kind == 'b' and permit.standing == 'h' then
      candidates[#candidates + 1] = permit
    end
  end
  table.sort(candidates, function(a, b)
    if a.first ~= b.first then
      return b.first
    end
    return a.order > b.order
  end)
  for _, permit in ipairs(candidates) do
    if not over() then
      break
    end
    change(permit, 'standing', 'r')
    slots, tokens = slots - 1, tokens - permit.tokens
    victims[#victims + 1] = permit.token
  end
  if #victims > 0 then
    -- A hint: a subscriber that is reconnecting misses it, and learns the same from its next renewal.
    redis.call('PUBLISH', CHANNEL, table.concat(victims, ' '))
  end
  return victims
end

local function reclaim()
  local in_use_slots, in_use_tokens = interactive_use()
  return ask_back(function(slots, tokens)
    return in_use_slots + slots - SLOTS, in_use_tokens + tokens - TOKENS
  end)
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
