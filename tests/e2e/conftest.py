"""What the tests of the whole product share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from scheduler.simulation.engine.profile import EngineProfile
from tests.engine.process import EngineProcess
from tests.support.night import Night
from tests.support.promise import SLOTS


@pytest.fixture
def night(tmp_path: Path) -> Iterator[Night]:
    """A folder without settings and tickets; whatever is started in it ends with the test."""
    made = Night(tmp_path)
    yield made
    made.close()


@pytest.fixture
def steady_engine() -> Iterator[EngineProcess]:
    """An engine with work to interrupt: a ticket beside fifteen others takes about a third of a second."""
    with EngineProcess(EngineProfile(slots=SLOTS, step_base_seconds=0.02), "--answer-tokens", "12") as running:
        yield running
