"""What the store costs: per write, per claim and per submitted ticket, at a thousand jobs and at a hundred thousand."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

import pytest

from jobs.store import batches
from jobs.store.database import Database
from tests.support.store import claim, submit, succeed, ticket

AT_ONCE = 32
ROUNDS = 25
TEXT = "The parcel that I ordered last week has not come. " * 12
SIZES = (1_000, 100_000)


@dataclass(frozen=True, slots=True)
class Cost:
    """CPU of this process and time on the clock, milliseconds."""

    cpu_ms: float
    wall_ms: float

    def __str__(self) -> str:
        return f"{self.wall_ms:7.2f} ms ({self.cpu_ms:.2f} ms of CPU)"


def measured(call: Callable[[], object]) -> Cost:
    cpu, wall = time.process_time(), time.perf_counter()
    call()
    return Cost((time.process_time() - cpu) * 1e3, (time.perf_counter() - wall) * 1e3)


def typical(costs: list[Cost]) -> Cost:
    return Cost(median(cost.cpu_ms for cost in costs), median(cost.wall_ms for cost in costs))


@pytest.mark.benchmark
@pytest.mark.timeout(600)
def test_the_cost_of_a_write_and_of_a_claim_does_not_grow_with_the_table(database: Database) -> None:
    writes: dict[int, Cost] = {}
    for size in SIZES:
        rows = (ticket(number, f"{TEXT}{size} {number}") for number in range(size))
        loading = measured(lambda rows=rows, size=size: submit(database, rows, source_key=str(size)))  # type: ignore[misc]
        batch = batches.resolve(database, "latest")
        claimed, written = [], []
        for _ in range(ROUNDS):
            held: list[object] = []
            claimed.append(measured(lambda held=held, batch=batch: held.extend(claim(database, batch, AT_ONCE))))  # type: ignore[misc]
            written.append(measured(lambda held=held: succeed(database, held)))  # type: ignore[misc]
            assert len(held) == AT_ONCE
        shown = typical([measured(lambda batch=batch: batches.get(database, batch)) for _ in range(ROUNDS)])  # type: ignore[misc]
        writes[size] = typical(written)
        print(f"\n{database.dialect}, {size:,} jobs")
        print(f"  submit            {size / loading.wall_ms * 1e3:7,.0f} tickets/s")
        print(f"  claim {AT_ONCE}          {typical(claimed)}")
        print(f"  finish {AT_ONCE}         {writes[size]}, {AT_ONCE / writes[size].wall_ms * 1e3:,.0f} finishes/s")
        print(f"  status of a batch {shown}")

    assert writes[SIZES[1]].cpu_ms < 2 * writes[SIZES[0]].cpu_ms
