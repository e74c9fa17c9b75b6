"""What a permit costs: the ledger's scripts beside one that does nothing, to the same server by the same client."""

import asyncio
import gc
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from statistics import median

import psutil  # type: ignore[import-untyped]
import pytest

from scheduler.capacity import Amount, PoolCapacity
from scheduler.ledger import KEYS, Ledger
from scheduler.line import Line, connect
from scheduler.permit import Ask, Kind, Outlook, Permit, PublishedLimit
from tests.support.valkey import ValkeyServer

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(600)]

CLIENTS = 64
PAIRS = 100  # of each client in a round
ROUNDS = 5
CAPACITY = PoolCapacity(Amount(400, 4_000_000), Amount(100, 1_000_000), Amount(10, 100_000))
RISES = (Amount(1, 100), Amount(2, 200), Amount(2, 200), Amount(3, 300))
OUTLOOK = Outlook(Amount(4, 3_000), 2_000, 200, 1, 10_000, 300, 200, RISES)
ASK = Ask(300, 100, 2_000)
PAIRS_PER_SECOND, OPEN_SECONDS = 500, 10
LEAST_OF_NOTHING = 0.5
MOST_P99_MS = 3.0
MOST_OF_NOTHING = 1.5  # where the machine is so busy that doing nothing takes as long

Pair = Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Speed:
    """Calls per second, and microseconds of the server's CPU a call."""

    rate: float
    server_us: float


@asynccontextmanager
async def ledgers(valkey: ValkeyServer, count: int) -> AsyncIterator[list[Ledger]]:
    """So many ledgers, each with its own connections, of a pool at work: a limit in force, chat seen at the engine."""
    made = [Ledger.connect(valkey.url, "gpu", CAPACITY, lease_seconds=60) for _ in range(count)]
    await made[0].found()
    await made[0].publish(PublishedLimit(Amount(300, 3_000_000), 1_000_000, OUTLOOK), 600, 1)
    await made[0].observe(Amount(3, 3_000), 600)
    yield made
    for ledger in made:
        await ledger.aclose()


@asynccontextmanager
async def lines(valkey: ValkeyServer, count: int) -> AsyncIterator[list[Line]]:
    """As many lines for a script that does nothing with as many keys and arguments."""
    keys = [f"nothing:{{gpu}}:{key}" for key in KEYS]
    made = [Line(connect(valkey.url), {"nothing": "return 0"}, keys, [bytes(56)]) for _ in range(count)]
    yield made
    for line in made:
        await line.aclose()


def pair_of(ledger: Ledger, kind: Kind) -> Pair:
    async def pair() -> None:
        permit = await ledger.acquire(kind, ASK)
        assert isinstance(permit, Permit), permit
        await ledger.release(permit)

    return pair


def nothing(line: Line) -> Pair:
    async def pair() -> None:
        await line.call("nothing", "0123456789abcdef", 300, 400, 2_000, 1)
        await line.call("nothing", "0123456789abcdef")

    return pair


@contextmanager
def ahead_of_others(server: ValkeyServer) -> Iterator[None]:
    """What else the machine does, and our own garbage, is not what a pair costs; without the right to it, it counts."""
    assert server.process is not None
    ours = (0, server.process.pid)
    gc.collect()
    gc.disable()
    try:
        for pid in ours:
            os.sched_setscheduler(pid, os.SCHED_RR, os.sched_param(1))
    except PermissionError:
        print("not allowed to go first: what else the machine does counts too")
    try:
        yield
    finally:
        gc.enable()
        for pid in ours:
            os.sched_setscheduler(pid, os.SCHED_OTHER, os.sched_param(0))


async def speed(valkey: ValkeyServer, pairs: Sequence[Pair]) -> Speed:
    """Every client does its pairs as fast as it can."""
    assert valkey.process is not None
    server = psutil.Process(valkey.process.pid)

    async def client(pair: Pair) -> None:
        for _ in range(PAIRS):
            await pair()

    with ahead_of_others(valkey):
        before, began = server.cpu_times(), time.perf_counter()
        await asyncio.gather(*(client(pair) for pair in pairs))
        seconds, after = time.perf_counter() - began, server.cpu_times()
    calls = 2 * PAIRS * len(pairs)
    return Speed(calls / seconds, (after.user + after.system - before.user - before.system) / calls * 1e6)


@pytest.mark.parametrize("connections", [1, CLIENTS])
def test_calls_a_second_beside_a_script_that_does_nothing(valkey: ValkeyServer, connections: int) -> None:
    async def run() -> dict[str, list[Speed]]:
        found: dict[str, list[Speed]] = {"nothing": [], "batch": [], "interactive": []}
        async with ledgers(valkey, connections) as ours, lines(valkey, connections) as bare:
            ways = {
                "nothing": [nothing(bare[n % connections]) for n in range(CLIENTS)],
                "batch": [pair_of(ours[n % connections], Kind.BATCH) for n in range(CLIENTS)],
                "interactive": [pair_of(ours[n % connections], Kind.INTERACTIVE) for n in range(CLIENTS)],
            }
            for _ in range(ROUNDS):
                for name, pairs in ways.items():
                    found[name].append(await speed(valkey, pairs))
        return found

    found = asyncio.run(run())
    print(f"\n{CLIENTS} clients over {connections} connections, median of {ROUNDS} rounds of {CLIENTS * PAIRS:,} pairs")
    ratios = {}
    for name, of in found.items():
        ratios[name] = median(each.rate / base.rate for each, base in zip(of, found["nothing"], strict=True))
        rate, server_us = median(each.rate for each in of), median(each.server_us for each in of)
        print(
            f"  {name:12}{rate:8,.0f} calls/s, {ratios[name]:.2f} of nothing; {server_us:5.1f} us of the server a call"
        )
    assert min(ratios.values()) >= LEAST_OF_NOTHING


async def latencies_ms(pair: Pair) -> list[float]:
    """An open loop: pairs begin by the clock whether the ones before have ended or not, and late ones count as late."""
    taken: list[float] = []

    async def timed(due: float) -> None:
        await pair()
        taken.append((time.perf_counter() - due) * 1e3)

    began = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for number in range(PAIRS_PER_SECOND * OPEN_SECONDS):
            due = began + number / PAIRS_PER_SECOND
            if (left := due - time.perf_counter()) > 0:
                await asyncio.sleep(left)
            group.create_task(timed(due))
    return sorted(taken)


def test_latency_of_an_acquire_and_its_release_in_an_open_loop(valkey: ValkeyServer) -> None:
    async def run() -> dict[str, list[float]]:
        async with ledgers(valkey, 1) as (ledger,), lines(valkey, 1) as (line,):
            pairs = {"nothing": nothing(line), "batch": pair_of(ledger, Kind.BATCH)}
            pairs["interactive"] = pair_of(ledger, Kind.INTERACTIVE)
            return {name: await latencies_ms(pair) for name, pair in pairs.items()}

    with ahead_of_others(valkey):
        found = asyncio.run(run())
    p99 = {name: of[int(len(of) * 0.99)] for name, of in found.items()}
    print(f"\n{PAIRS_PER_SECOND} acquire-release pairs a second, {OPEN_SECONDS} s each: ms of the pair")
    for name, of in found.items():
        print(f"  {name:12} p50 {median(of):6.2f}, p99 {p99[name]:6.2f}, longest {of[-1]:6.2f}")
    assert max(p99.values()) < max(MOST_P99_MS, MOST_OF_NOTHING * p99["nothing"])
