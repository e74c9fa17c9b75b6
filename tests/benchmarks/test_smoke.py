"""Two minutes of each shape of chat in real time, beside the same two minutes in virtual time.

The real run is the product as it runs elsewhere: gateway, Valkey, scheduler and two worker processes, on an engine that
steps in real time. The virtual one is the same core, ledger's rules and limit as one discrete-event model. Where they
differ, what the table of virtual time promises is not what a person gets.
"""

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median, quantiles

import pytest

from scheduler.simulation.admission import Admission
from scheduler.simulation.shapes import Arrival
from scheduler.simulation.tickets import SHORT, TicketQueue, endless
from scheduler.simulation.world import World
from tests.benchmarks.whole_nights import Cores
from tests.engine.log import LogRow
from tests.engine.process import EngineProcess
from tests.simulation.chats import SHAPES, TABLE_SHAPES
from tests.simulation.sites import MIDDLE
from tests.support.chat import NUMBER, Chat, Felt, Outcome, outcomes, ttft_quantiles
from tests.support.meter import Meter
from tests.support.night import Night
from tests.support.shared_night import SharedNight, batch_now, of_class
from tests.support.valkey import ValkeyServer
from tests.support.wait import wait_until

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(300)]

SECONDS = 120.0
SEED = 1
VIRTUAL_NIGHTS = 9  # one chat, and as many draws of the moments at which batch asks again
AGREE = 0.25


@dataclass(frozen=True, slots=True)
class Figures:
    """Seconds to the chat's first token, and tickets per second."""

    p50: float
    p95: float
    p99: float
    tickets_per_second: float
    refused: int

    def __str__(self) -> str:
        return (
            f"TTFT p50 {self.p50:.3f}, p95 {self.p95:.3f}, p99 {self.p99:.3f} s; {self.tickets_per_second:.2f} "
            f"tickets/s; {self.refused} refused"
        )


def virtual(arrivals: list[Arrival], seed: int) -> Figures:
    world = World(MIDDLE, arrivals, TicketQueue(endless("short", SEED)), Admission(priority=1, seed=seed), SECONDS)
    tally = world.run()
    ttfts = sorted(tally.ttfts_seconds)
    p50, p95, p99 = (ttfts[int(share * len(ttfts))] for share in (0.50, 0.95, 0.99))
    return Figures(p50, p95, p99, tally.tickets / SECONDS, tally.refused)


def real(night: Night, valkey: ValkeyServer, arrivals: list[Arrival]) -> tuple[Figures, list[Felt]]:
    with EngineProcess(MIDDLE.profile, "--answer-tokens", str(SHORT.output_tokens)) as engine:
        shared = SharedNight(night, MIDDLE, engine.base_url, valkey, ticket=SHORT)
        shared.begin(tickets=round(SECONDS * 20))
        wait_until(lambda: batch_now(engine) > shared.floor, "batch to be above its floor", 40)
        cores = Cores()
        with Meter(night, engine=engine.pid) as meter, Chat(shared.gateway, arrivals) as chat:
            felt = chat.wait(SECONDS + 40)
            began_at, in_use = chat.began_at, cores.since()
        rows = engine.log()
    batch = [row for row in of_class(rows, "batch") if began_at <= (row.ended_at or 0.0) < began_at + SECONDS]
    assert {row.prompt_tokens for row in batch} == {SHORT.prompt_tokens}
    done = sum(row.outcome == "ok" for row in batch)
    used = {role: round(cores, 2) for role, cores in meter.cores(began_at, began_at + SECONDS).items()}
    others = in_use - sum(used.values())
    print(f"\n  {outcomes(felt)}; {len(batch) - done} tickets withdrawn")
    print(f"  {where_the_time_went(felt, rows)}")
    print(f"  cores in use: {used}, by others and by the chat itself {others:.2f}")
    p50, p95, p99 = ttft_quantiles(felt)
    return Figures(p50, p95, p99, done / SECONDS, outcomes(felt)[Outcome.REFUSED]), felt


def where_the_time_went(felt: list[Felt], rows: list[LogRow]) -> str:
    """The parts of the time to the first token, of which virtual time has the wait at the door and the third."""
    at_engine = {int(row.headers[NUMBER]): row for row in of_class(rows, "interactive")}
    parts: dict[str, list[float]] = {"sent late": [], "to the engine": [], "in the engine": [], "back": []}
    for each in felt:
        if each.ttft_seconds is not None:
            row = at_engine[each.number]
            assert row.first_token_at is not None
            moments = (each.due_at, each.sent_at, row.arrived_at, row.first_token_at, each.due_at + each.ttft_seconds)
            for part, (begin, end) in zip(parts.values(), pairwise(moments), strict=True):
                part.append(1000 * (end - begin))
    return "ms, p50 and p95: " + ", ".join(
        f"{name} {median(part):.0f} and {quantiles(part, n=20)[18]:.0f}" for name, part in parts.items()
    )


@pytest.mark.parametrize("shape", TABLE_SHAPES)
def test_real_time_agrees_with_virtual_time(shape: str, tmp_path: Path, valkey: ValkeyServer) -> None:
    arrivals = SHAPES[shape](MIDDLE, SEED, SECONDS)
    night = Night(tmp_path)
    try:
        measured, felt = real(night, valkey, arrivals)
    finally:
        night.close()
    foreseen = [virtual(arrivals, seed) for seed in range(1, VIRTUAL_NIGHTS + 1)]
    typical = sorted(foreseen, key=lambda figures: figures.p95)[VIRTUAL_NIGHTS // 2]
    print(f"{shape}, {len(arrivals)} chat requests in {SECONDS:g} s")
    print(f"  real:    {measured}")
    print(f"  virtual: {typical}")
    print(f"           p95 from {min(f.p95 for f in foreseen):.3f} to {max(f.p95 for f in foreseen):.3f}")
    print(f"  p95 real over virtual: {measured.p95 / typical.p95:.2f}")
    assert set(outcomes(felt)) <= {Outcome.ANSWERED, Outcome.REFUSED}
    assert abs(measured.p95 / typical.p95 - 1) <= AGREE
