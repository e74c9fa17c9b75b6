-- Extend what still exists by one lease: what has gone stays gone. Answers { epoch, standing ... } in the order asked.
epoch()
local answer, expires = { id }, NOW + LEASE_MS
local written = {}
for n, of in ipairs(call('HMGET', PERMITS, unpack(ARGV, FIRST))) do
  local permit = of and read(ARGV[FIRST + n - 1], of)
  if permit and permit.expires < expires then
    permit.expires = expires
    written[#written + 1] = permit.token
    written[#written + 1] = pack(RECORD, fields(permit))
  end
  answer[#answer + 1] = standing(permit)
end
if #written > 0 then
  save(unpack(written)) -- with the state: renewals alone must keep the keys, too
end
return answer
