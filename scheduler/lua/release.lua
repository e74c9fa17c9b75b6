-- Give a permit back, by its token. An unknown one is no error: its lease has run out.
local permit = read(ARGV[FIRST])
if permit then
  forget(permit)
end
save()
return permit and 1 or 0
