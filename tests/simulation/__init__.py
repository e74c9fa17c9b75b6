"""Nights in virtual time: chat and tickets on the test engine's core, the ledger and the limit as in production."""
