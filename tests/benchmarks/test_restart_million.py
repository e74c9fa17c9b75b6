"""Everything is killed in the midst of a batch of a million jobs: how long until the engine gets a ticket again."""

import signal
import time
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest

from jobs.store.database import Database
from scheduler.simulation.engine.profile import EngineProfile
from tests.benchmarks.test_status_million import LARGE, grow
from tests.engine.process import EngineProcess
from tests.support.night import Night
from tests.support.store import submit
from tests.support.wait import wait_until

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(900)]

SLOTS = 8
LEASE_SECONDS = 15.0
MOST_SECONDS = 10.0 + LEASE_SECONDS
UNDER_WAY = 40
RESTARTS = 3


def kill_everything(night: Night) -> None:
    """Parents first: nobody is left who would start a child again."""
    victims = night.processes()
    for process in victims:
        process.send_signal(signal.SIGSTOP)
    for process in victims:
        process.kill()
    gone, alive = psutil.wait_procs(victims, timeout=30)
    assert gone
    assert not alive


def seconds_to_first_request(engine: EngineProcess, after: float) -> float:
    """From an instant, in seconds since the Unix epoch, to the first request that came later.

    What was in flight at that instant is in the engine's log too, behind it.
    """
    seen = len(engine.log())

    def came() -> list[float]:
        return [row.arrived_at for row in engine.log(seen) if row.arrived_at > after]

    return min(wait_until(came, "a ticket to be sent", 120)) - after


def wait_for_requests(engine: EngineProcess, count: int) -> None:
    seen = len(engine.log())
    wait_until(lambda: len(engine.log()) >= seen + count, "the work to be under way", 120)


def test_from_the_death_of_everything_to_the_next_ticket(database: Database, database_url: str, tmp_path: Path) -> None:
    batch_id = submit(database, 1_000).batch_id
    grow(database, batch_id, LARGE)
    night = Night(tmp_path)
    taken = []
    with EngineProcess(EngineProfile()) as engine:
        night.configure(
            engine.base_url, slots=SLOTS, processes=1, lease_seconds=LEASE_SECONDS, database_url=database_url
        )
        night.start("up")
        try:
            for _ in range(RESTARTS):
                wait_for_requests(engine, UNDER_WAY)
                kill_everything(night)
                killed_at = time.time()
                night.start("up")
                taken.append(seconds_to_first_request(engine, killed_at))
        finally:
            night.close()
    print(f"\n{database.dialect}, {LARGE:,} jobs: from kill -9 of everything to the first ticket sent")
    print(f"  {', '.join(f'{seconds:.1f}' for seconds in taken)} s")
    assert max(taken) < MOST_SECONDS
