-- Put in front of every verb: the pool's state and its clock.
local PERMITS, EXPIRY, TOTALS, LIMIT, EPOCH, OBSERVED, PAUSED, FIRSTS, BEAT, CHANNEL = unpack(KEYS)
local SLOTS, TOKENS = tonumber(ARGV[1]), tonumber(ARGV[2])
local OWN_I_SLOTS, OWN_I_TOKENS = tonumber(ARGV[3]), tonumber(ARGV[4])
local FLOOR_SLOTS, FLOOR_TOKENS = tonumber(ARGV[5]), tonumber(ARGV[6])
local LEASE_MS = tonumber(ARGV[7])
local FIRST = 8 -- the verb's own arguments begin here
-- Keys without traffic go away by themselves; far longer than any permit may last without a renewal.
local KEEP_MS = 600000
local COUNTS = '(-?%d+) (-?%d+) (-?%d+) (-?%d+) (-?%d+) (-?%d+) (-?%d+) (-?%d+) (-?%d+)'
  .. ' (-?%d+) (-?%d+) (-?%d+) (-?%d+) (-?%d+) (-?%d+) (-?%d+) (-?%d+)'
local WRITTEN = '%d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d'

local NOW = now_ms()

-- i: interactive, b: batch (what is being reclaimed too), r: of that being reclaimed, p: batch prompt tokens without a
-- first token, e: how long batch's requests are expected to take (ms, together), w: interactive requests without a first
-- token and since when there are any, batch_at: when batch was last admitted,
-- order: permits ever given, kept_at: when the keys of the members were last kept from expiring; counters, ever:
-- arrivals (interactive admitted), refused (interactive), revoked (batch), firsts (first tokens)
local T
do -- in one go: a pattern for all of them and a table of the right size, where every call comes by
  local n = { string.match(redis.call('GET', TOTALS) or '', COUNTS) }
  T = {
    i_slots = tonumber(n[1] or 0), i_tokens = tonumber(n[2] or 0),
    b_slots = tonumber(n[3] or 0), b_tokens = tonumber(n[4] or 0),
    r_slots = tonumber(n[5] or 0), r_tokens = tonumber(n[6] or 0),
    p_tokens = tonumber(n[7] or 0), e_ms = tonumber(n[8] or 0),
    w_slots = tonumber(n[9] or 0), w_since = tonumber(n[10] or 0), batch_at = tonumber(n[11] or 0),
    order = tonumber(n[12] or 0), kept_at = tonumber(n[13] or 0),
    arrivals = tonumber(n[14] or 0), refused = tonumber(n[15] or 0), revoked = tonumber(n[16] or 0),
    firsts = tonumber(n[17] or 0),
  }
end

-- In the order in which they are read.
local function totals()
  return T.i_slots, T.i_tokens, T.b_slots, T.b_tokens, T.r_slots, T.r_tokens, T.p_tokens, T.e_ms, T.w_slots, T.w_since,
    T.batch_at, T.order, T.kept_at, T.arrivals, T.refused, T.revoked, T.firsts
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
  redis.call('HSET', PERMITS, permit.token, string.format('%s %d %d %d %d %d %s %s',
    permit.kind, permit.tokens, permit.prompt, permit.order, permit.at, permit.expected,
    permit.first and '1' or '0', permit.standing))
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
  redis.call('SET', TOTALS, string.format(WRITTEN, totals()), 'PX', KEEP_MS)
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
