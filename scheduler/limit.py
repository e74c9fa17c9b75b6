"""How much batch may hold now: the pure estimator behind the published limit."""

from scheduler.capacity import PoolCapacity
from scheduler.permit import PublishedLimit


def decide(capacity: PoolCapacity) -> PublishedLimit:
    """The configured maximum: batch's protected minimum and everything shared, with as much prefill as fits it."""
    most = capacity.most_batch
    return PublishedLimit(most, most.tokens)
