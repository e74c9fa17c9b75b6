-- Begin a ledger that no earlier one can have given permits for: it need not wait for one lease.
call('HSETNX', EPOCH, 'id', string.format('%d', NOW))
call('HSETNX', EPOCH, 'settled_at', NOW)
return 1
