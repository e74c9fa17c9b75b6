"""WHAT is to be done: batches, jobs, their states and their results."""
