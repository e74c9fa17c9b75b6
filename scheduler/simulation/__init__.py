"""Nights in virtual time: chat and tickets on a model of the engine, the ledger and the limit as in production."""
