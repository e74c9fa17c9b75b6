"""The pools of the settings in the words of admission."""

from scheduler.capacity import Amount, PoolCapacity
from tickets_batch.settings import Capacity, Pool


def capacity_of(pool: Pool) -> PoolCapacity:
    """What a configured pool carries, and what each class owns of it."""
    return PoolCapacity(
        total=_amount(pool.capacity),
        protected_interactive=_amount(pool.protected.interactive),
        floor=_amount(pool.protected.batch),
    )


def _amount(capacity: Capacity) -> Amount:
    return Amount(capacity.slots, capacity.tokens)
