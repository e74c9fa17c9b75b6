"""Chaos: the whole product as processes, faults by a seeded plan, and a judge of what is left."""
