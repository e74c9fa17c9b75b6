-- Ask back what batch holds over a target, or over its floor where that is more; drainers may end. Answers the permits asked back.
local victims = ask_back(tonumber(ARGV[FIRST]), tonumber(ARGV[FIRST + 1]), DRAINER_MS)
save()
return victims
