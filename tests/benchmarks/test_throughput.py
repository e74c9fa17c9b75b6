"""Tickets per second from end to end on an engine that answers at once, beside a bare loop; and that they stay flat."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

import psutil  # type: ignore[import-untyped]
import pytest

from jobs.answer import parse_answer
from jobs.prompt import build_messages, response_format
from jobs.spec import ClassificationSpec
from scheduler.simulation.engine.profile import EngineProfile
from tests.engine.process import EngineProcess
from tests.support.meter import Meter
from tests.support.night import LABELS, Night
from tickets_batch.settings import Pool
from workers.client import ModelClient

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(1800)]

SLOTS = 20
TICKETS = 3_000
ROUNDS = 3
LEAST_OF_BARE = 0.6
SIZES = (1_000, 10_000, 100_000)
SPEC = ClassificationSpec(
    labels={label: f"about {label}" for label in LABELS},
    instructions="You sort a shop's support tickets.",
    max_output_tokens=24,
)


def body(number: int) -> str:
    return f"Parcel {number} has not come, and I have been waiting for more than a week now. Where is it? " * 4


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


def bare_loop(engine: EngineProcess) -> Run:
    """The product's own client over a list in memory: one process, the same streaming, as many at once."""
    process = psutil.Process(engine.pid)

    async def run() -> Run:
        pool = {"name": "gpu", "base_url": engine.base_url, "model": "test-model", "capacity": {"slots": SLOTS}}
        client = ModelClient(Pool.model_validate(pool), at_once=SLOTS)
        left = iter(range(TICKETS))
        parse = partial(parse_answer, SPEC)

        async def work() -> None:
            for number in left:
                messages = build_messages(SPEC, "", body(number))
                attempt = await client.classify(messages, response_format(SPEC), 24, parse=parse)
                assert attempt.label in LABELS

        began, cpu, cpu_of_engine, cores = time.perf_counter(), time.process_time(), process.cpu_times(), Cores()
        await asyncio.gather(*(work() for _ in range(SLOTS)))
        seconds, ours, after = time.perf_counter() - began, time.process_time() - cpu, process.cpu_times()
        others = cores.since()
        await client.aclose()
        engines = after.user + after.system - cpu_of_engine.user - cpu_of_engine.system
        cpu_ms = {"loop": ours / TICKETS * 1e3, "engine": engines / TICKETS * 1e3}
        return Run(TICKETS / seconds, cpu_ms, max(0.0, others - (ours + engines) / seconds))

    return asyncio.run(run())


def whole_night(folder: Path, engine: EngineProcess, tickets: int, processes: int) -> tuple[Run, Meter]:
    """From the first claim to the last result in SQL, by the whole command; and what it cost from its start on."""
    folder.mkdir()
    night = Night(folder)
    night.configure(engine.base_url, slots=SLOTS, chat=0, processes=processes, lease_seconds=15)
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


def typical(runs: Sequence[Run]) -> Run:
    cpu_ms = {role: median(run.cpu_ms[role] for run in runs) for role in runs[0].cpu_ms}
    return Run(median(run.rate for run in runs), cpu_ms, median(run.others for run in runs))


def test_a_night_on_an_instant_engine_beside_a_bare_loop(tmp_path: Path) -> None:
    runs: dict[str, list[Run]] = {"bare loop": [], "1 worker": [], "2 workers": []}
    with EngineProcess(EngineProfile.instant()) as engine:
        for number in range(ROUNDS):
            runs["bare loop"].append(bare_loop(engine))
            for processes, name in ((1, "1 worker"), (2, "2 workers")):
                folder = tmp_path / f"{number}-{processes}"
                runs[name].append(whole_night(folder, engine, TICKETS, processes)[0])
    bare = runs["bare loop"]
    ratios = {name: [run.rate / base.rate for run, base in zip(of, bare, strict=True)] for name, of in runs.items()}
    print(f"\nmedian of {ROUNDS} rounds of {TICKETS:,} tickets, {SLOTS} at a time; CPU in ms a ticket")
    for name, of in runs.items():
        shown, all_rates = typical(of), [round(run.rate) for run in of]
        cpu = ", ".join(f"{role} {ms:.2f}" for role, ms in shown.cpu_ms.items())
        print(f"{name:10} {shown.rate:5.0f} tickets/s {all_rates}, {median(ratios[name]):.2f} of bare")
        print(f"           CPU: {cpu}; together {sum(shown.cpu_ms.values()):.2f}; others took {shown.others:.2f} cores")
    assert median(ratios["2 workers"]) >= LEAST_OF_BARE


def test_cost_per_ticket_and_memory_stay_flat(tmp_path: Path) -> None:
    cost: dict[int, float] = {}
    memory: dict[int, float] = {}
    with EngineProcess(EngineProfile.instant()) as engine:
        for size in SIZES:
            engine.reset()
            run, meter = whole_night(tmp_path / str(size), engine, size, processes=2)
            cost[size] = sum(meter.cpu_seconds.values()) / size * 1e3
            memory[size] = meter.peak_mb["worker"]
            peaks = {role: round(mb) for role, mb in meter.peak_mb.items()}
            under_way = sum(run.cpu_ms.values())
            print(
                f"\n{size:7,} tickets: {run.rate:5.0f}/s, {under_way:.2f} ms of CPU a ticket while under way, "
                f"{cost[size]:.2f} with start and end, peak MB {peaks}",
                end="",
            )
    print()
    assert cost[SIZES[-1]] <= 1.25 * cost[10_000]
    assert memory[SIZES[-1]] <= 1.25 * memory[10_000]
