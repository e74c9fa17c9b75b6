"""The control loop: decides how much batch may hold and publishes it with a short time to live. Touches Redis only."""

import asyncio
import logging
from collections.abc import Callable, Sequence

from scheduler import limit
from scheduler.ledger import Ledger, LedgerUnavailable

log = logging.getLogger(__name__)

PERIOD_SECONDS = 0.5
LIMIT_SECONDS = 3.0  # how long a limit stands when no new one comes: then batch is at its floor


async def control(ledgers: Sequence[Ledger], leader_epoch: Callable[[], int | None]) -> None:
    """Publish a limit for every pool twice a second, while we lead; runs until it is cancelled."""
    while True:
        epoch = leader_epoch()
        if epoch is not None:
            for ledger in ledgers:
                await _publish(ledger, epoch)
        await asyncio.sleep(PERIOD_SECONDS)


async def _publish(ledger: Ledger, epoch: int) -> None:
    try:
        if not await ledger.publish(limit.decide(ledger.capacity), LIMIT_SECONDS, epoch):
            log.warning("pool %s: a newer leader has published a limit; ours was refused", ledger.pool)
    except LedgerUnavailable as error:
        log.warning("pool %s: no limit was published: %s", ledger.pool, error)
