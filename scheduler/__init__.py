"""WHEN jobs run, and how many at a time."""
