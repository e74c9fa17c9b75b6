"""Whether nothing can tell of the chat in a pool, so that batch stays at its floor there."""

from scheduler.pools import capacity_of
from tickets_batch.settings import Pool


def is_blind(pool: Pool) -> bool:
    """True for a pool without a signal, unless all of it is batch's own."""
    return not pool.signal and not capacity_of(pool).is_dedicated
