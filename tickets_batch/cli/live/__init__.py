"""A batch while it is at work, for a person who waits: one live view on a terminal, plain lines elsewhere."""
