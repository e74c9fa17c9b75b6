-- The engine has begun to answer: the prompt is no longer in front of anyone. Answers the permit's standing.
local permit = read(ARGV[FIRST])
if permit and not permit.first then
  change(permit, 'first', true)
end
save()
return standing(permit)
