"""Engines to test against, as fixtures."""

from collections.abc import Iterator

import pytest

from scheduler.simulation.engine.profile import EngineProfile
from tests.engine.process import EngineThread
from tests.support.engines import SLOW


@pytest.fixture(scope="session")
def shared_engine() -> Iterator[EngineThread]:
    with EngineThread(EngineProfile.instant()) as engine:
        yield engine


@pytest.fixture
def instant_engine(shared_engine: EngineThread) -> EngineThread:
    """An engine that answers at once, without faults or history."""
    shared_engine.reset()
    return shared_engine


@pytest.fixture
def slow_engine() -> Iterator[EngineThread]:
    with EngineThread(SLOW) as engine:
        yield engine
