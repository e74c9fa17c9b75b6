-- The request was withdrawn, but the engine may still be working on it for a while: it counts until then.
if record then
  local permit = read(ARGV[FIRST], record)
  permit.expires = NOW + ARGV[FIRST + 1]
  due_at = math.min(due_at, permit.expires)
  local is_held = permit.kind == 'b' and permit.standing == 'h'
  if is_held then
    call('ZREM', RANKS, permit.token, END .. permit.token)
  end
  save(permit.token, change(permit, 'standing', is_held and 'd' or permit.standing))
end
return record and 1 or 0
