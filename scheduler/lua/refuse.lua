-- Count a chat request that has waited for room as long as it may, and was refused for good.
refused = refused + 1
save()
return 1
