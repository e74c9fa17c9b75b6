"""A whole night by the whole command, and what it cost: tickets a second, CPU by role, memory."""

import time
from dataclasses import dataclass
from pathlib import Path

import psutil  # type: ignore[import-untyped]

from tests.benchmarks.plain_loops import body
from tests.engine.process import EngineProcess
from tests.support.meter import Meter
from tests.support.night import Night


@dataclass(frozen=True, slots=True)
class Run:
    """Tickets per second, milliseconds of CPU a ticket by role while tickets were under way, and cores others took."""

    rate: float
    cpu_ms: dict[str, float]
    others: float


class Cores:
    """How much of this machine's cores is in use, by anyone."""

    def __init__(self) -> None:
        self._began, self._before = time.perf_counter(), self._in_use()

    def since(self) -> float:
        """Cores in use since this was made, on average."""
        return (self._in_use() - self._before) / (time.perf_counter() - self._began)

    def _in_use(self) -> float:
        times = psutil.cpu_times()
        return float(times.user + times.nice + times.system + times.softirq)


def whole_night(folder: Path, engine: EngineProcess, tickets: int, processes: int, slots: int) -> tuple[Run, Meter]:
    """From the first claim to the last result in SQL, by the whole command; and what it cost from its start on."""
    folder.mkdir()
    night = Night(folder)
    night.configure(engine.base_url, slots=slots, chat=0, processes=processes, lease_seconds=15)
    night.tickets(body(number) for number in range(tickets))
    cores = Cores()
    try:
        with Meter(night, engine=engine.pid) as meter:
            night.submit_and_wait(timeout_seconds=1500)
        in_use = cores.since()
        batch = night.batch()
    finally:
        night.close()
    assert batch is not None
    assert batch.started_at is not None
    assert batch.finished_at is not None
    assert batch.succeeded == tickets
    begin, end = batch.started_at.timestamp(), batch.finished_at.timestamp()
    rate, by_role = tickets / (end - begin), meter.cores(begin, end)
    others = max(0.0, in_use - sum(meter.cores(0.0, time.time()).values()))
    return Run(rate, {role: cores / rate * 1e3 for role, cores in by_role.items()}, others), meter
