"""What the ledgers of all pools say now, for verbs that show it."""

import asyncio
from collections.abc import Mapping
from datetime import datetime
from types import TracebackType
from typing import Self

from scheduler.capacity import PoolCapacity
from scheduler.hours import SharedHours
from scheduler.ledger import Ledger, LedgerUnavailable
from scheduler.pool_reading import PoolReading
from scheduler.pools import capacity_of
from scheduler.snapshot import Snapshot
from tickets_batch.errors import UserError
from tickets_batch.local.home import Home
from tickets_batch.settings import Settings, reveal

EMBEDDED_AWAY = "the Valkey server of this home does not answer: submit --wait and up run it; nothing new is admitted"


def capacities(settings: Settings) -> Mapping[str, PoolCapacity]:
    """What each pool of the settings can carry, by its name."""
    return {pool.name: capacity_of(pool) for pool in settings.pool}


class Ledgers:
    """Reads the ledgers on the configured Redis, or the embedded one, a snapshot at a time."""

    def __init__(self, settings: Settings) -> None:
        url = reveal(settings.redis_url) if settings.redis_url is not None else Home(settings.home).redis_url()
        pools = settings.pool if url else ()
        self._ledgers = {pool.name: Ledger.connect(url or "", pool.name, capacity_of(pool)) for pool in pools}
        self._hours = {pool.name: SharedHours.of(pool.shared_hours, settings.zone) for pool in pools}
        self._runner = asyncio.Runner()
        self._has_redis = url is not None
        self._is_embedded = settings.redis_url is None
        self.why_away: str | None = None

    def snapshots(self) -> Mapping[str, Snapshot]:
        """One snapshot a pool; empty while Redis is away, for which `why_away` then has the words."""
        return self._runner.run(self._read())

    def readings(self, now: datetime) -> Mapping[str, PoolReading]:
        """The same, with what is configured of each pool; `now` is the time of the snapshots."""
        return {
            name: PoolReading.of(name, self._ledgers[name].capacity, self._hours[name], snapshot, now)
            for name, snapshot in self.snapshots().items()
        }

    def require(self) -> None:
        """Raises UserError when Redis does not answer."""
        self.snapshots()
        if self.why_away:
            raise UserError(self.why_away)

    async def _read(self) -> Mapping[str, Snapshot]:
        self.why_away = None if self._has_redis else "no Redis has been started here yet"
        try:
            found = await asyncio.gather(*(ledger.snapshot() for ledger in self._ledgers.values()))
        except LedgerUnavailable as error:
            self.why_away = EMBEDDED_AWAY if self._is_embedded else str(error)
            return {}
        return dict(zip(self._ledgers, found, strict=True))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        async def close() -> None:
            for ledger in self._ledgers.values():
                await ledger.aclose()

        self._runner.run(close())
        self._runner.close()
