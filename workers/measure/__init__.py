"""Measuring a pool: tickets against the real endpoint, more and more at a time, until more are of no use."""
