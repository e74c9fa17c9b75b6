"""A module for each parser, with its `TARGET`."""
