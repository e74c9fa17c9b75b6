"""The batches that this process works on, as the store last showed them, and the store's time carried on from then.

The time is the one for what must not happen early (`Database.at_least`): a step of the clock ends no request.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta

from jobs.states import BatchState
from jobs.store import batches
from jobs.store.batches import BatchWork
from jobs.store.database import Database
from jobs.store.errors import StoreConflict, StoreUnavailable

log = logging.getLogger(__name__)


class Watch:
    """Methods run on one event loop; only `look` waits for the store, so a deadline holds while the store is away."""

    def __init__(self, db: Database, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._db = db
        self._monotonic = monotonic
        self._works: dict[str, BatchWork] = {}
        self._zero: datetime | None = None  # the store's time when the monotonic clock stood at zero

    def __iter__(self) -> Iterator[str]:
        return iter(self._works)

    async def look(self, batch_id: str) -> BatchWork | None:
        """Read a batch; while the store is away, what was read last stands. Raises UserError when there is none."""
        try:
            work, zero = await asyncio.to_thread(self._read, batch_id)
        except (StoreUnavailable, StoreConflict) as error:
            log.warning("the state of %s was not read: %s", batch_id, error)
        else:
            self._zero = zero
            self._works[batch_id] = work
        return self._works.get(batch_id)

    def forget(self, batch_id: str) -> None:
        """Nothing of this batch is here any more."""
        self._works.pop(batch_id, None)

    def goes_on(self, batch_id: str) -> bool:
        """Whether jobs of this batch may be started."""
        work = self._works.get(batch_id)
        return work is not None and work.state is BatchState.RUNNING and not self.is_past_deadline(batch_id)

    def is_cancelling(self, batch_id: str) -> bool:
        """Whether what is in flight of this batch is to be withdrawn."""
        work = self._works.get(batch_id)
        return work is not None and work.state is BatchState.CANCELLING

    def is_past_deadline(self, batch_id: str, grace_seconds: float = 0.0) -> bool:
        """Whether this batch's time is up, and the grace after it."""
        seconds = self.seconds_left(batch_id)
        return seconds is not None and seconds + grace_seconds <= 0

    def seconds_left(self, batch_id: str) -> float | None:
        """Until this batch's deadline, negative after it; None where it has none."""
        work = self._works.get(batch_id)
        if work is None or work.deadline_at is None or self._zero is None:
            return None
        now = self._zero + timedelta(seconds=self._monotonic())
        return (work.deadline_at - now).total_seconds()

    def _read(self, batch_id: str) -> tuple[BatchWork, datetime]:
        work = batches.work(self._db, batch_id)
        # here and not on the loop, which may be late: two clocks are compared, so they are read together
        return work, self._db.at_least() - timedelta(seconds=self._monotonic())
