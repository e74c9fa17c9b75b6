"""Tickets per second from end to end on an engine that answers at once, beside a bare loop; and that they stay flat."""

import asyncio
import time
from functools import partial
from pathlib import Path
from statistics import median

import pytest

from jobs.answer import parse_answer
from jobs.prompt import build_messages, response_format
from jobs.spec import ClassificationSpec
from tests.engine.process import EngineProcess
from tests.engine.profile import EngineProfile
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


def bare_loop(base_url: str) -> float:
    """Tickets/s of the product's own client over a list in memory: one process, the same streaming, as many at once."""

    async def run() -> float:
        pool = {"name": "gpu", "base_url": base_url, "model": "test-model", "capacity": {"slots": SLOTS}}
        client = ModelClient(Pool.model_validate(pool), at_once=SLOTS)
        left = iter(range(TICKETS))
        parse = partial(parse_answer, SPEC)

        async def work() -> None:
            for number in left:
                messages = build_messages(SPEC, "", body(number))
                attempt = await client.classify(messages, response_format(SPEC), 24, parse=parse)
                assert attempt.label in LABELS

        began = time.perf_counter()
        await asyncio.gather(*(work() for _ in range(SLOTS)))
        seconds = time.perf_counter() - began
        await client.aclose()
        return TICKETS / seconds

    return asyncio.run(run())


def whole_night(folder: Path, base_url: str, tickets: int, processes: int) -> tuple[float, Meter]:
    """Tickets/s from the first claim to the last result in SQL, by the whole command; and what it cost."""
    folder.mkdir()
    night = Night(folder)
    night.configure(base_url, slots=SLOTS, chat=0, processes=processes, lease_seconds=15)
    night.tickets(body(number) for number in range(tickets))
    try:
        with Meter(night) as meter:
            night.submit_and_wait(timeout_seconds=1500)
        batch = night.batch()
    finally:
        night.close()
    assert batch is not None
    assert batch.started_at is not None
    assert batch.finished_at is not None
    assert batch.succeeded == tickets
    return tickets / (batch.finished_at - batch.started_at).total_seconds(), meter


def test_a_night_on_an_instant_engine_beside_a_bare_loop(tmp_path: Path) -> None:
    bare, ours = [], {1: [], 2: []}  # type: ignore[var-annotated]
    with EngineProcess(EngineProfile.instant()) as engine:
        for number in range(ROUNDS):
            bare.append(bare_loop(engine.base_url))
            for processes, rates in ours.items():
                folder = tmp_path / f"{number}-{processes}"
                rate, meter = whole_night(folder, engine.base_url, TICKETS, processes)
                rates.append(rate)
    print(f"\nbare loop, one process      {median(bare):6.0f} tickets/s  {[round(rate) for rate in bare]}")
    for processes, rates in ours.items():
        ratio = median(rate / base for rate, base in zip(rates, bare, strict=True))
        shown = [round(rate) for rate in rates]
        print(f"the product, {processes} worker(s)    {median(rates):6.0f} tickets/s  {shown}: {ratio:.2f} of bare")
    per_ticket = {role: round(seconds / TICKETS * 1e3, 2) for role, seconds in meter.cpu_seconds.items()}
    print(f"CPU per ticket, ms, 2 workers: {per_ticket}")
    assert median(ours[2]) / median(bare) >= LEAST_OF_BARE


def test_cost_per_ticket_and_memory_stay_flat(tmp_path: Path) -> None:
    cost: dict[int, float] = {}
    memory: dict[int, float] = {}
    with EngineProcess(EngineProfile.instant()) as engine:
        for size in SIZES:
            engine.reset()
            rate, meter = whole_night(tmp_path / str(size), engine.base_url, size, processes=2)
            cost[size] = sum(meter.cpu_seconds.values()) / size * 1e3
            memory[size] = meter.peak_mb["worker"]
            peaks = {role: round(mb) for role, mb in meter.peak_mb.items()}
            print(f"\n{size:7,} tickets: {rate:5.0f}/s, {cost[size]:.2f} ms of CPU a ticket, peak MB {peaks}", end="")
    print()
    assert cost[SIZES[-1]] <= 1.25 * cost[10_000]
    assert memory[SIZES[-1]] <= 1.25 * memory[10_000]
