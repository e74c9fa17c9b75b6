"""One time for all processes: the database's, carried forward by the monotonic clock."""

import time
from collections.abc import Callable
from datetime import datetime, timedelta
from threading import Lock

REREAD_SECONDS = 10.0
STEP_SECONDS = 1.0
SETTLING_SECONDS = 30.0  # until every process has read the stepped clock and renewed its leases by it


class Clock:
    """Reads the database's time now and then, and counts on by the monotonic clock in between.

    A step of the clock it reads is taken over at the next reading, and for half a minute from then `is_settled` is
    False: leases written by processes that have not yet noticed must not count as expired. Meanwhile nobody knows
    whether the step put the clock right or wrong, and `at_least` believes in the earlier of the two times.
    """

    def __init__(self, read: Callable[[], datetime], monotonic: Callable[[], float] = time.monotonic) -> None:
        self._read = read
        self._monotonic = monotonic
        self._lock = Lock()
        self._anchor: datetime | None = None
        self._anchored_at = 0.0
        self._stepped_at: float | None = None
        self._watched_since: float | None = None
        self._before_zero: datetime | None = None  # without the step, the time at which the monotonic clock was zero

    def now(self) -> datetime:
        """The current instant, UTC. Raises StoreUnavailable when it has to be read and cannot."""
        with self._lock:
            anchor, age = self._anchor, self._monotonic() - self._anchored_at
            if anchor is not None and age < REREAD_SECONDS:
                return anchor + timedelta(seconds=age)
            return self._reread()

    def reread(self) -> datetime:
        """The current instant, read now: who judges what others have written must not learn of a step after them.

        Raises StoreUnavailable when it cannot be read.
        """
        with self._lock:
            return self._reread()

    def at_least(self) -> datetime:
        """It is at least this late: while the clock settles, as late as the earlier of both times says.

        For what must not happen early. Raises StoreUnavailable like `now`.
        """
        now = self.now()
        with self._lock:
            if self._before_zero is None or self.is_settled:
                return now
            return min(now, self._before_zero + timedelta(seconds=self._monotonic()))

    def _reread(self) -> datetime:
        fresh = self._read()
        here = self._monotonic()
        if self._anchor is not None:
            carried = self._anchor + timedelta(seconds=here - self._anchored_at)
            if abs((fresh - carried).total_seconds()) > STEP_SECONDS:
                zero = carried - timedelta(seconds=here)
                if self._before_zero is not None and not self.is_settled:  # a step within a step
                    zero = min(zero, self._before_zero)
                self._stepped_at, self._before_zero = here, zero
        self._anchor, self._anchored_at = fresh, here
        if self._watched_since is None:
            self._watched_since = here
        return fresh

    @property
    def is_settled(self) -> bool:
        """False for a while after the clock was seen to step."""
        return self._stepped_at is None or self._monotonic() - self._stepped_at >= SETTLING_SECONDS

    @property
    def is_known(self) -> bool:
        """True once the clock was watched for half a minute and did not step: everybody alive has read it since.

        Who begins after a step back sees leases that end long after they can; until then they may be of the living.
        """
        is_watched = self._watched_since is not None and self._monotonic() - self._watched_since >= SETTLING_SECONDS
        return is_watched and self.is_settled
