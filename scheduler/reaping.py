"""Reaping: jobs of workers that are gone become other workers' to take."""

import time
from collections.abc import Callable

from jobs.store import claims, services
from jobs.store.clock import REREAD_SECONDS
from jobs.store.database import Database

HEARD_SECONDS = 10.0  # a worker beats every two seconds or so
LEAST_AWAY_SECONDS = 2.0  # some ticks of the scheduler: shorter than that it sees no outage
BACK_SECONDS = 2.0  # a renewal that failed is tried again within a second, on a new connection


class Reaping:
    """For one scheduler, whether it leads or stands by; `lease_seconds` is that of the workers.

    While the database is away nobody renews, and when it is back every lease may be over though its holder lives. So
    after it was away, which may have been before we began, nothing is reaped until all who live have had the time to
    renew: they do so three times a lease.

    A scheduler that began after a step of the clock does not know of it, and the workers do not yet: they renew by the
    time before. Such a worker seems silent for long. So in its first seconds it reaps only where none does.
    """

    def __init__(self, db: Database, lease_seconds: float, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._db = db
        self._monotonic = monotonic
        self._renewal_seconds = lease_seconds / 3
        self._is_sure_at = monotonic() + REREAD_SECONDS + self._renewal_seconds
        self._seen_at = monotonic()
        self._renewed_at = self._seen_at + self._renewal_seconds + BACK_SECONDS

    def saw_database(self) -> None:
        """The database answered just now; to be told more often than every two seconds."""
        now = self._monotonic()
        if self._was_away(now):
            self._renewed_at = now + self._renewal_seconds + BACK_SECONDS
        self._seen_at = now

    def look(self) -> int:
        """Take back what is overdue; how many jobs. Raises StoreUnavailable."""
        now = self._monotonic()
        if self._was_away(now) or now < self._renewed_at:
            return 0
        if now < self._is_sure_at and services.has_silent(self._db, "worker", HEARD_SECONDS):
            return 0
        return claims.reap(self._db)

    def _was_away(self, now: float) -> bool:
        # Shorter than between two renewals, and every lease has still so much left.
        return now - self._seen_at > max(self._renewal_seconds, LEAST_AWAY_SECONDS)
