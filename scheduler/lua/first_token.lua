-- The engine has begun to answer: the prompt is no longer in front of anyone. How long it took is remembered where it is
-- told at once (1), not after an outage (0). Answers the permit's standing.
local permit = record and read(ARGV[FIRST], record)
if permit and permit.first == '0' then
  firsts = firsts + 1
  if ARGV[FIRST + 1] == '1' then
    local length = call('LPUSH', FIRSTS, string.format('%s %d %d', permit.kind, NOW - permit.at, permit.prompt))
    if length == 1 then
      call('PEXPIRE', FIRSTS, KEEP_MS)
    elseif length >= 2 * RECENT then -- not at every call
      call('LTRIM', FIRSTS, 0, RECENT - 1)
    end
  end
  if permit.kind == 'i' then
    call('ZREM', RANKS, permit.token)
  elseif permit.standing == 'h' then
    call('ZADD', RANKS, ANSWERING + permit.order, permit.token)
  end
  save(permit.token, change(permit, 'first', '1'))
end
return standing(permit)
