-- Admit a request of the chat, or say why not. Answers the epoch's id, or { reason }.
local prompt, tokens, expected = ARGV[FIRST + 1] + 0, ARGV[FIRST + 2] + 0, ARGV[FIRST + 3] + 0
epoch()

local function refused()
  local most_slots, most_tokens = SLOTS - FLOOR_SLOTS, TOKENS - FLOOR_TOKENS
  if most_slots < 1 or tokens > most_tokens then
    return 'too_large'
  end
  -- By its own count: a scrape shows for seconds more what has ended since.
  if i_slots + 1 > most_slots or i_tokens + tokens > most_tokens then
    return 'capacity'
  end
end

-- The same ask again, after an answer that was lost on the way: it was admitted.
if not record then
  local reason = refused()
  if reason == 'capacity' then
    ask_back(0, 0, 0) -- before chat asks again, batch is at its floor: whoever is about to end too
    save()
  end
  if reason then
    return { reason }
  end
  arrivals = arrivals + 1
  local new = add('i', ARGV[FIRST + 4], tokens, prompt, expected)
  reclaim()
  clear_the_way()
  save(ARGV[FIRST], new)
end
return id
