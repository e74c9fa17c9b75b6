"""The only SQL of the product."""
