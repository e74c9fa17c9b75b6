"""The engine's clock: monotonic, can be frozen, and loses the time in which the process was stopped."""

import time
from bisect import bisect_right
from collections.abc import Callable


class EngineClock:
    """Seconds of working time since it was made.

    An engine that is stopped (SIGSTOP) does no work meanwhile. `now` is told when it was due to be called next: being
    `stopped_after_seconds` late or more means that the process stood still, and the delay is taken out.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic, *, stopped_after_seconds: float = 0.5) -> None:
        self._monotonic = monotonic
        self._stopped_after_seconds = stopped_after_seconds
        self._frozen_at: float | None = None
        self._wall_offset = time.time() - monotonic()
        # Monotonic minus engine time, and the engine times from which each value holds.
        self._lags = [monotonic()]
        self._lag_starts = [0.0]

    @property
    def frozen(self) -> bool:
        return self._frozen_at is not None

    def now(self, due: float | None = None) -> float:
        if self._frozen_at is not None:
            return self._frozen_at
        now = self._monotonic() - self._lags[-1]
        if due is not None and now - due >= self._stopped_after_seconds:
            self._resume_at(due)
            return due
        return now

    def monotonic(self, engine_time: float) -> float:
        """That moment on the monotonic clock; what happens just when the engine stops counts as after it."""
        return engine_time + self._lags[bisect_right(self._lag_starts, engine_time) - 1]

    def wall(self, engine_time: float) -> float:
        """That moment in seconds since the Unix epoch."""
        return self.monotonic(engine_time) + self._wall_offset

    def wall_now(self) -> float:
        """Seconds since the Unix epoch; goes on while the clock is frozen."""
        return self._monotonic() + self._wall_offset

    def freeze(self) -> None:
        if self._frozen_at is None:
            self._frozen_at = self.now()

    def thaw(self) -> None:
        if self._frozen_at is not None:
            frozen_at, self._frozen_at = self._frozen_at, None
            self._resume_at(frozen_at)

    def _resume_at(self, engine_time: float) -> None:
        self._lag_starts.append(engine_time)
        self._lags.append(self._monotonic() - engine_time)
