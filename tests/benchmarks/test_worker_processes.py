"""How worker processes scale: an engine that takes its time and no core, more of its slots for each process.

What a ticket costs each process says how far more cores carry: until a part that all share is full. It is printed.
"""

from pathlib import Path

import pytest

from scheduler.simulation.engine.profile import EngineProfile
from tests.benchmarks.whole_nights import Run, whole_night
from tests.engine.process import EngineProcess

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(1800)]

PROCESSES = (1, 2, 4)
SLOTS_EACH = 40
STEP_SECONDS = 0.025  # a ticket takes about a fifth of a second: some tokens of answer, a step for each
TICKETS_EACH = 2_000
SHARED = ("valkey", "scheduler", "submit")
MOST_GROWTH = 1.25  # of a ticket's CPU in the workers, from one process to two: each costs what it cost alone


def test_worker_processes_scale_until_a_shared_part_is_full(tmp_path: Path) -> None:
    profile = EngineProfile.instant().changed({"step_base_seconds": STEP_SECONDS})
    runs: dict[int, Run] = {}
    # Two pieces an answer, the first token and the rest: the engine is not to be what is measured.
    with EngineProcess(profile, "--stream-interval", "64") as engine:
        for number in PROCESSES:
            tickets, slots = number * TICKETS_EACH, number * SLOTS_EACH
            runs[number], _ = whole_night(tmp_path / str(number), engine, tickets, number, slots)
    print(f"\n{SLOTS_EACH} slots and {TICKETS_EACH:,} tickets for each process; CPU in ms a ticket")
    for number, run in runs.items():
        cpu = ", ".join(f"{role} {ms:.2f}" for role, ms in run.cpu_ms.items())
        print(f"{number} processes: {run.rate:5.0f} tickets/s; {cpu}; others took {run.others:.2f} cores")
    for role in SHARED:
        least = min(run.cpu_ms[role] for run in runs.values())
        print(f"{role:10} has one core: it is not full before {1e3 / least:,.0f} tickets/s")
    one, two = (runs[number].cpu_ms["worker"] for number in PROCESSES[:2])
    print(f"a core of workers carries {1e3 / two:,.0f} tickets/s")
    assert two <= MOST_GROWTH * one
