"""A clock that can be moved on, and a database whose time it is."""

from collections.abc import Iterator

import pytest

from jobs.store.database import Database
from tests.support.skipping import RunningClock


@pytest.fixture
def running_clock() -> RunningClock:
    return RunningClock()


@pytest.fixture
def skipping_database(database_url: str, running_clock: RunningClock) -> Iterator[Database]:
    """An empty database whose time runs on `running_clock`."""
    db = Database.open(database_url, running_clock.now)
    yield db
    db.dispose()
