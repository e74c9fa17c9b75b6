"""The pools of the settings in the words of admission."""

from collections.abc import Iterable

from scheduler.capacity import Amount, PoolCapacity
from scheduler.ledger import Ledger
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


async def found_ledgers(redis_url: str, pools: Iterable[Pool]) -> None:
    """Begin the ledgers of a Redis that has never given a permit. Raises LedgerUnavailable."""
    for pool in pools:
        ledger = Ledger.connect(redis_url, pool.name, capacity_of(pool))
        try:
            await ledger.found()
        finally:
            await ledger.aclose()
