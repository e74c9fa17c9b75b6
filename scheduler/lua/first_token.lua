-- The engine has begun to answer: the prompt is no longer in front of anyone. Answers the permit's standing.
local permit = record and read(ARGV[FIRST], record)
if permit and permit.first == '0' then
  firsts = firsts + 1
  local length = call('LPUSH', FIRSTS, string.format('%s %d %d', permit.kind, NOW - permit.at, permit.prompt))
  if length == 1 then
    call('PEXPIRE', FIRSTS, KEEP_MS)
  elseif length >= 2 * RECENT then -- not at every call
    call('LTRIM', FIRSTS, 0, RECENT - 1)
  end
  if permit.kind == 'i' then
    call('ZREM', RANKS, permit.token)
  elseif permit.standing == 'h' then
    call('ZADD', RANKS, ANSWERING + permit.order, permit.token)
  end
  save(permit.token, change(permit, 'first', '1'))
end
return standing(permit)
