"""Time that runs by itself and can be moved on, for what a night waits minutes for."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from jobs.store.database import Database


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


@pytest.fixture
def running_clock() -> RunningClock:
    return RunningClock()


@pytest.fixture
def skipping_database(database_url: str, running_clock: RunningClock) -> Iterator[Database]:
    """An empty database whose time runs on `running_clock`."""
    db = Database.open(database_url, running_clock.now)
    yield db
    db.dispose()
