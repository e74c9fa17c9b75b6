-- A gateway or guard is alive: chat that does not show here is not there.
call('SET', BEAT, string.format('%d', NOW), 'PX', KEEP_MS)
return 1
