-- Put in front of every verb: its keys, the pool's state, and the permit that the verb is about.
-- One hash holds the state and the permits, so that one call reads both and one call writes both. Numbers are packed,
-- not written out, and those that arrive as text are read by adding 0: both cost a fraction of a pattern or a tonumber.
local PERMITS, RANKS, EPOCH, LIMIT, OBSERVED, PAUSED, FIRSTS, BEAT, CHANNEL = unpack(KEYS)
local FIRST = 2 -- the verb's own arguments begin here; the one before is the lease (ms) and the capacity, packed
-- Keys without traffic go away by themselves; far longer than any permit may last without a renewal.
local KEEP_MS = 600000
local STATE = '#' -- the field of the state; the others are tokens
-- A permit: when it expires, kind (i: interactive, b: batch), has its first token (0|1), standing (h: held, r: revoked,
-- d: draining), tokens, prompt tokens, expected to take (ms, 0: unknown), order, acquired at.
local RECORD = '<dc1c1c1ddddd'
local COUNTS, COUNTS_BYTES = '<dddddddddddddddddddd', 160
-- What is looked for among the permits stands in a sorted set, for no search to go through all that is held. By score:
-- chat without a first token by when it came, then what batch holds and was not asked back: when each is expected to end
-- (under its token and a mark), and by order, those without a first token above the others. All of it follows from the
-- records; it changes with them.
local ENDS, ANSWERING, PREFILLING = 2 ^ 42, 2 ^ 43, 2 ^ 44 -- a time in ms is below the first until 2109
local END = '~'
local call, pack, unpacked = redis.call, struct.pack, struct.unpack

local LEASE_MS = unpacked('<d', ARGV[1])
local NOW = now_ms()

-- i: interactive, b: batch (what is being reclaimed too), r: of that being reclaimed, p: batch prompt tokens without a
-- first token, e: how long batch's requests are expected to take (ms, together), w: interactive requests without a first
-- token and since when there are any, batch_at: when batch was last admitted; counters, ever: order (permits given),
-- arrivals (interactive admitted), refused (interactive), revoked (batch), firsts (first tokens); kept_at: when the keys
-- were last kept from expiring, due_at: no permit expires before, id and settled_at: the epoch's, 0 until it is read.
local i_slots, i_tokens, b_slots, b_tokens, r_slots, r_tokens, p_tokens, e_ms = 0, 0, 0, 0, 0, 0, 0, 0
local w_slots, w_since, batch_at, order, kept_at, arrivals, refused, revoked, firsts = 0, 0, 0, 0, 0, 0, 0, 0, 0
local due_at, id, settled_at = 0, 0, 0

local counts, record = unpack(call('HMGET', PERMITS, STATE, ARGV[FIRST] or STATE))
if counts and #counts == COUNTS_BYTES then
  i_slots, i_tokens, b_slots, b_tokens, r_slots, r_tokens, p_tokens, e_ms, w_slots, w_since, batch_at, order, kept_at,
    arrivals, refused, revoked, firsts, due_at, id, settled_at = unpacked(COUNTS, counts)
else -- new, or another version's, which says nothing here
  call('DEL', PERMITS, RANKS)
  record = false
end

-- A new ledger cannot know what an earlier one gave: until one lease has passed, batch is at its floor.
local function epoch()
  if id == 0 then
    local known = call('HMGET', EPOCH, 'id', 'settled_at')
    if known[1] then
      id, settled_at = known[1] + 0, known[2] + 0
    else
      id, settled_at = NOW, NOW + LEASE_MS
      call('HSET', EPOCH, 'id', string.format('%d', id), 'settled_at', string.format('%d', settled_at))
    end
  end
  if settled_at > NOW + LEASE_MS then -- the clock was set back since
    settled_at = 0
  end
end

-- What a permit comes to, added or taken away; in the order of a record.
local function count(sign, _, kind, first, standing, tokens, prompt, expected)
  if kind == 'b' then
    b_slots, b_tokens, e_ms = b_slots + sign, b_tokens + sign * tokens, e_ms + sign * expected
    if first == '0' then
      p_tokens = p_tokens + sign * prompt
    end
  else
    i_slots, i_tokens = i_slots + sign, i_tokens + sign * tokens
    if first == '0' then
      w_slots = w_slots + sign
    end
  end
  if standing ~= 'h' then
    r_slots, r_tokens = r_slots + sign, r_tokens + sign * tokens
  end
end

local function forget(token, of)
  local expires, kind, first, standing, tokens, prompt, expected = unpacked(RECORD, of)
  call('HDEL', PERMITS, token)
  if kind == 'b' and standing == 'h' then
    call('ZREM', RANKS, token, END .. token)
  elseif kind == 'i' and first == '0' then
    call('ZREM', RANKS, token)
  end
  count(-1, expires, kind, first, standing, tokens, prompt, expected)
end

-- Write the state, and beside it the record of a permit where one has changed.
local function save(...)
  local keeps = math.abs(NOW - kept_at) >= KEEP_MS / 10 -- not at every call; a clock may also be set back
  if keeps then
    kept_at = NOW
  end
  call('HSET', PERMITS, STATE, pack(COUNTS, i_slots, i_tokens, b_slots, b_tokens, r_slots, r_tokens, p_tokens, e_ms,
    w_slots, w_since, batch_at, order, kept_at, arrivals, refused, revoked, firsts, due_at, id, settled_at), ...)
  if keeps then
    -- Or the set would go with its last member, and come again without an end. And a member longer than 64 bytes makes
    -- the server index a small set too, which it would search from end to end otherwise: up to twice as dear.
    call('ZADD', RANKS, -1, string.rep(STATE, 65))
    call('PEXPIRE', PERMITS, KEEP_MS)
    call('PEXPIRE', RANKS, KEEP_MS)
    call('PEXPIRE', FIRSTS, KEEP_MS)
  end
end

-- No permit is given for so long: one that ends later was given before the clock was set back. It is cut down to one
-- lease, in which a live holder renews it.
local LATEST = NOW + 2 * LEASE_MS
if NOW >= due_at or (due_at > LATEST and due_at < math.huge) then
  due_at, w_since, batch_at = math.huge, math.min(w_since, NOW), math.min(batch_at, NOW)
  local members, has_changed = call('HGETALL', PERMITS), false
  for n = 1, #members, 2 do
    local token, of = members[n], members[n + 1]
    if token ~= STATE then
      local expires = unpacked('<d', of)
      if expires > LATEST then
        expires = NOW + LEASE_MS
        of = pack('<d', expires) .. of:sub(9)
        call('HSET', PERMITS, token, of)
        has_changed = true
        if token == ARGV[FIRST] then
          record = of
        end
      end
      if expires > NOW then
        due_at = math.min(due_at, expires)
      else
        forget(token, of)
        has_changed = true
        if token == ARGV[FIRST] then
          record = false
        end
      end
    end
  end
  if has_changed then
    save() -- whatever the verb does: what is gone from the members must be gone from the counts
  end
end
