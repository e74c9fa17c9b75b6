"""The leases under which this process holds jobs: renewed in time, and lost when the store says so."""

import asyncio
import logging
from collections.abc import Callable, Iterable

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, wait_fixed

from jobs.job import Job
from jobs.store import claims
from jobs.store.database import Database
from jobs.store.errors import StoreConflict, StoreUnavailable
from workers.forever import for_ever

log = logging.getLogger(__name__)

AGAIN_SECONDS = 1.0  # after a renewal that failed: as soon as the database is back


class Leases:
    """Every job this process holds, waiting, in flight or not yet written. Methods run on one event loop."""

    def __init__(self, db: Database, worker: str, lease_seconds: float, lost: Callable[[Job], None]) -> None:
        self._db = db
        self._worker = worker
        self._lease_seconds = lease_seconds
        self._lost = lost
        self._held: dict[int, Job] = {}

    async def claim(self, batch_id: str, limit: int) -> list[Job]:
        """Take up to `limit` jobs of a batch. Raises StoreUnavailable, StoreConflict."""
        taken = await asyncio.to_thread(claims.claim, self._db, batch_id, limit, self._worker, self._lease_seconds)
        for job in taken:
            if before := self._held.get(job.id):  # it was lost, and is ours again before we have noticed
                self._lost(before)
            self._held[job.id] = job
        return taken

    def drop(self, jobs: Iterable[Job]) -> None:
        """These are written, or another's: no longer ours to renew. A later claim of the same job stays."""
        for job in jobs:
            if (held := self._held.get(job.id)) and held.claim == job.claim:
                del self._held[job.id]

    async def renew_for_ever(self) -> None:
        """Renew three times a lease. While the database is away nobody can reap, so the work goes on."""
        await for_ever(self._lease_seconds / 3, self._renew)

    async def _renew(self) -> None:
        retrying = AsyncRetrying(
            retry=retry_if_exception_type((StoreUnavailable, StoreConflict)),
            wait=wait_fixed(min(AGAIN_SECONDS, self._lease_seconds / 3)),
            before_sleep=_say,
        )
        await retrying(self._try_to_renew)

    async def _try_to_renew(self) -> None:
        asked = dict(self._held)
        tokens = {job.lease_token for job in asked.values()}
        held = await asyncio.to_thread(claims.renew, self._db, tokens, self._lease_seconds)
        for job_id in asked.keys() - held:
            # Written in the meantime, or taken by a reaper: only the second is still in our list.
            if self._held.get(job_id) is asked[job_id]:
                self._lost(asked[job_id])


def _say(failed: RetryCallState) -> None:
    assert failed.outcome is not None  # noqa: S101 - it has been tried
    log.warning("leases were not renewed: %s", failed.outcome.exception())
