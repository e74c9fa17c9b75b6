-- Ask back what batch holds over a target, or over its floor where that is more. Answers the permits asked back.
local target_slots, target_tokens = tonumber(ARGV[FIRST]), tonumber(ARGV[FIRST + 1])
local victims = ask_back(function(slots, tokens)
  return slots - target_slots, tokens - target_tokens
end)
save()
return victims
