"""Time that runs by itself and can be moved on, for what a night waits minutes for; its fixtures are beside it."""

import time
from datetime import UTC, datetime, timedelta


class RunningClock:
    """Both of a process's clocks, so many seconds ahead; may be moved on while others read it."""

    def __init__(self) -> None:
        self._ahead_seconds = 0.0

    def now(self) -> datetime:
        return datetime.now(UTC) + timedelta(seconds=self._ahead_seconds)

    def monotonic(self) -> float:
        return time.monotonic() + self._ahead_seconds

    def skip(self, seconds: float) -> None:
        self._ahead_seconds += seconds
