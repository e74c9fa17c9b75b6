-- Put in front of the verbs that enter a permit or change one.
local function read(token, of)
  local expires, kind, first, standing, tokens, prompt, expected, n, at = unpacked(RECORD, of)
  return { token = token, expires = expires, kind = kind, first = first, standing = standing, tokens = tokens,
    prompt = prompt, expected = expected, order = n, at = at }
end

local function fields(p)
  return p.expires, p.kind, p.first, p.standing, p.tokens, p.prompt, p.expected, p.order, p.at
end

-- Change a permit; answers its record, which is still to be written.
local function change(permit, field, value)
  count(-1, fields(permit))
  permit[field] = value
  count(1, fields(permit))
  return pack(RECORD, fields(permit))
end

-- Count the verb's new permit; answers its record, which is still to be written.
local function add(kind, first, tokens, prompt, expected)
  local token, expires = ARGV[FIRST], NOW + LEASE_MS
  order, due_at = order + 1, math.min(due_at, expires)
  if kind == 'b' then
    local rank = order + (first == '0' and PREFILLING or ANSWERING)
    if expected > 0 then
      call('ZADD', RANKS, rank, token, ENDS + NOW + expected, END .. token)
    else
      call('ZADD', RANKS, rank, token)
    end
  elseif first == '0' then
    call('ZADD', RANKS, NOW, token)
    if w_slots == 0 then
      w_since = NOW
    end
  end
  count(1, expires, kind, first, 'h', tokens, prompt, expected)
  return pack(RECORD, expires, kind, first, 'h', tokens, prompt, expected, order, NOW)
end

local function standing(permit)
  if not permit then
    return 'gone'
  end
  return permit.standing == 'r' and 'revoked' or 'held'
end
