"""The night of a batch in figures, in words and in pictures."""
