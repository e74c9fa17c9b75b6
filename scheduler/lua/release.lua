-- Give a permit back, by its token. An unknown one is no error: its lease has run out.
if record then
  forget(ARGV[FIRST], record)
  save()
end
return record and 1 or 0
