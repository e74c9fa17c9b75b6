"""Whose turn it is: pure."""

from collections.abc import Iterable

from jobs.store.batches import BatchWork


def at_turn(in_order: Iterable[BatchWork]) -> list[BatchWork]:
    """The batches to work on at the same time: each that shares no pool with one before it whose turn it is."""
    found: list[BatchWork] = []
    taken: set[str] = set()
    for work in in_order:
        if taken.isdisjoint(work.pools):
            found.append(work)
            taken.update(work.pools)
    return found
