"""Random nights over the real store and the real ledger go as the model says, and end with nothing lost."""

import asyncio
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from scheduler import line
from tests.model.machine import RandomNight
from tests.support.valkey import ValkeyServer

EVERY_DAY = settings(
    max_examples=6,
    stateful_step_count=60,
    derandomize=True,
    deadline=None,
    print_blob=True,
    report_multiple_bugs=False,
    phases=[Phase.generate],  # what fails is shown as it was: to shrink it takes minutes
    suppress_health_check=[HealthCheck.too_slow],
)
AT_LENGTH = settings(
    EVERY_DAY,
    derandomize=False,
    database=None,
    max_examples=30,
    stateful_step_count=80,
    phases=[Phase.generate, Phase.shrink],
)


@pytest.fixture
def runner(monkeypatch: pytest.MonkeyPatch) -> Iterator[asyncio.Runner]:
    monkeypatch.setattr(line, "CALL_SECONDS", 60.0)  # no night is judged by how busy this machine is
    with asyncio.Runner() as made:
        yield made


def play(database_url: str, server: ValkeyServer, runner: asyncio.Runner, chosen: settings) -> None:
    """Night after night on these servers; what `@reproduce_failure` says belongs above `RandomNight`."""

    class Tonight(RandomNight):
        def __init__(self) -> None:
            super().__init__(database_url, server, runner)

    run_state_machine_as_test(Tonight, settings=chosen)


@pytest.mark.timeout(300)  # a few seconds of work each, on machines that may be busy
def test_random_nights(database_url: str, valkey: ValkeyServer, runner: asyncio.Runner) -> None:
    play(database_url, valkey, runner, EVERY_DAY)


@pytest.mark.rare
def test_many_random_nights(database_url: str, valkey: ValkeyServer, runner: asyncio.Runner) -> None:
    """A failing night is made short and printed with what replays it; `--hypothesis-seed` chooses other nights."""
    play(database_url, valkey, runner, AT_LENGTH)
