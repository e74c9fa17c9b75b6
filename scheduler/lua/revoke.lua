-- Ask back what batch holds over a target, or over its floor where that is more; drainers may end. Answers the permits asked back.
local victims = ask_back(ARGV[FIRST] + 0, ARGV[FIRST + 1] + 0, DRAINER_MS)
if #victims > 0 then
  save()
end
return victims
