"""Reaping: jobs of workers that are gone become other workers' to take."""

import time
from collections.abc import Callable

from jobs.store import claims, services
from jobs.store.clock import REREAD_SECONDS
from jobs.store.database import Database

HEARD_SECONDS = 10.0  # a worker beats every two seconds or so


class Reaping:
    """For one scheduler that leads; `lease_seconds` is that of the workers.

    A scheduler that began after a step of the clock does not know of it, and the workers do not yet: they renew by the
    time before. Such a worker seems silent for long. So in its first seconds it reaps only where none does.
    """

    def __init__(self, db: Database, lease_seconds: float, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._db = db
        self._monotonic = monotonic
        # By then each worker has read the clock, and has renewed by it: it does so three times a lease.
        self._is_sure_at = monotonic() + REREAD_SECONDS + lease_seconds / 3

    def look(self) -> int:
        """Take back what is overdue; how many jobs. Raises StoreUnavailable."""
        if self._monotonic() < self._is_sure_at and services.has_silent(self._db, "worker", HEARD_SECONDS):
            return 0
        return claims.reap(self._db)
