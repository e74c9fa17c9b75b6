"""Ten pools with ten thousand permits on one Valkey: what each call costs the server beside ten pools with a hundred.

The server itself tells how long it worked on each call: its scripts run one at a time, whatever waits.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import psutil  # type: ignore[import-untyped]
import pytest

from jobs.store import claims
from jobs.store.database import Database
from scheduler.capacity import Amount, PoolCapacity
from scheduler.ledger import Ledger
from scheduler.permit import Ask, Kind, Outlook, Permit, PublishedLimit
from tests.engine.process import EngineProcess
from tests.support.night import Night
from tests.support.store import claim, submit
from tests.support.valkey import ValkeyServer
from tests.support.wait import wait_until

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(900)]

POOLS = 10
FEW, MANY = 10, 1_000  # permits a pool
CALLS = 200  # of each verb in a round
RENEWED = 100  # permits in a call, as a worker renews all it holds at once
ROUNDS = 5
LEASE_SECONDS = 900.0
CAPACITY = PoolCapacity(Amount(2_000, 4_000_000), Amount(500, 1_000_000), Amount(10, 20_000))
RISES = (Amount(1, 100), Amount(2, 200), Amount(2, 200), Amount(3, 300))
PREFILL_RATE, AHEAD_TOKENS = 10_000, 300
OUTLOOK = Outlook(Amount(4, 3_000), 2_000, 200, 1, PREFILL_RATE, AHEAD_TOKENS, 200, RISES)
BATCH = Ask(300, 100, 30_000)
CHAT = Ask(300, 100)
MOST_GROWTH = 2.0  # of what must not depend on how much is held; a small hash is kept in another form
WATCHED_SECONDS = 15.0
WORKER_LEASE_SECONDS = 15.0  # the default of worker.lease_seconds

Act = Callable[[], Awaitable[object]]


@dataclass(slots=True)
class Held:
    """A pool and what is held of it: nine tenths batch's, all with a first token."""

    ledger: Ledger
    permits: list[Permit]


def pool_name(group: str, number: int) -> str:
    return f"{group}-{number}"


async def fill(ledger: Ledger, count: int) -> Held:
    """A pool at work: a limit in force, so many permits, nobody waiting."""
    await ledger.found()
    await ledger.publish(PublishedLimit(Amount(1_400, 2_900_000), 1_000_000, OUTLOOK), LEASE_SECONDS, 1)
    permits = []
    for number in range(count):
        kind, ask = (Kind.INTERACTIVE, CHAT) if number % 10 == 0 else (Kind.BATCH, BATCH)
        permit = await ledger.acquire(kind, ask)
        assert isinstance(permit, Permit), permit
        await ledger.first_token(permit)
        permits.append(permit)
    return Held(ledger, permits)


@asynccontextmanager
async def pools(valkey: ValkeyServer, group: str, count: int) -> AsyncIterator[list[Held]]:
    async with AsyncExitStack() as stack:
        held = []
        for number in range(POOLS):
            ledger = Ledger.connect(valkey.url, pool_name(group, number), CAPACITY, lease_seconds=LEASE_SECONDS)
            stack.push_async_callback(ledger.aclose)
            held.append(await fill(ledger, count))
        yield held


class Server:
    """What the server says of its scripts."""

    def __init__(self, valkey: ValkeyServer) -> None:
        self._client = valkey.client()

    def script_us(self) -> tuple[float, int]:
        """Microseconds and calls so far."""
        stats = self._client.info("commandstats")["cmdstat_evalsha"]
        return float(stats["usec"]), int(stats["calls"])

    async def us_a_call(self, act: Act) -> float:
        """Of one script, on average over CALLS times `act`, however many scripts it calls."""
        before, calls = self.script_us()
        for _ in range(CALLS):
            await act()
        after, all_calls = self.script_us()
        return (after - before) / (all_calls - calls)

    def memory_bytes(self) -> int:
        return int(self._client.info("memory")["used_memory"])


def verbs(held: Held) -> dict[str, Act]:
    """What is asked of a pool all night long, by what it is called for."""
    ledger = held.ledger
    batch = [permit for permit in held.permits if permit.kind is Kind.BATCH]

    async def pair(kind: Kind, ask: Ask) -> None:
        permit = await ledger.acquire(kind, ask)
        assert isinstance(permit, Permit), permit
        await ledger.first_token(permit)
        await ledger.settle(permit, ask.amount.tokens)
        await ledger.release(permit)

    async def renew() -> None:
        asked = (batch * (RENEWED // len(batch) + 1))[:RENEWED]
        standings = await ledger.renew(asked)
        assert standings

    return {
        "a ticket's four calls": lambda: pair(Kind.BATCH, BATCH),
        "a chat's four calls": lambda: pair(Kind.INTERACTIVE, CHAT),
        f"renew {RENEWED}": renew,
        "beat": ledger.beat,
        "publish": lambda: ledger.publish(
            PublishedLimit(Amount(1_400, 2_900_000), 1_000_000, OUTLOOK), LEASE_SECONDS, 1
        ),
        "observe": lambda: ledger.observe(Amount(3, 3_000), 60),
        "snapshot": ledger.snapshot,
        "pull back, nothing over": lambda: ledger.revoke(CAPACITY.total),
    }


@asynccontextmanager
async def one_chat_waits(held: Held) -> AsyncIterator[None]:
    """For its first token, as nearly always where there is chat."""
    permit = await held.ledger.acquire(Kind.INTERACTIVE, CHAT)
    assert isinstance(permit, Permit)
    yield
    await held.ledger.release(permit)


@asynccontextmanager
async def prompts_in_the_way(held: Held) -> AsyncIterator[None]:
    """More of batch's prompts than a chat request is to wait behind, about to be read: too late to take back."""
    asks = [Ask(300, 100, 100)] * 2
    permits = [await held.ledger.acquire(Kind.BATCH, ask) for ask in asks]
    yield
    for permit in permits:
        assert isinstance(permit, Permit), permit
        await held.ledger.release(permit)


async def chat_pair(held: Held) -> None:
    permit = await held.ledger.acquire(Kind.INTERACTIVE, CHAT)
    assert isinstance(permit, Permit), permit
    await held.ledger.release(permit)


async def costs(server: Server, held: Held) -> dict[str, float]:
    """Microseconds of the server a script call, by what it was called for."""
    found = {name: await server.us_a_call(act) for name, act in verbs(held).items()}
    async with one_chat_waits(held):
        found["snapshot, a chat waits"] = await server.us_a_call(held.ledger.snapshot)
    async with prompts_in_the_way(held):
        found["chat behind prompts"] = await server.us_a_call(lambda: chat_pair(held))
    return found


def test_what_a_call_costs_does_not_depend_on_what_is_held(valkey: ValkeyServer) -> None:
    async def run() -> tuple[dict[str, dict[str, list[float]]], float]:
        server = Server(valkey)
        found: dict[str, dict[str, list[float]]] = {"few": {}, "many": {}}
        async with pools(valkey, "few", FEW) as few:
            before = server.memory_bytes()
            async with pools(valkey, "many", MANY) as many:
                a_permit = (server.memory_bytes() - before) / (POOLS * MANY)
                for number in range(ROUNDS):
                    for group, held in (("few", few), ("many", many)):
                        for name, us in (await costs(server, held[number])).items():
                            found[group].setdefault(name, []).append(us)
        return found, a_permit

    found, a_permit = asyncio.run(run())
    print(f"\nus of the server a call, median of {ROUNDS} rounds of {CALLS}; {POOLS} pools with so many permits each")
    print(f"{'':26}{FEW:>8,}{MANY:>8,}   ratio")
    ratios = {}
    for name, few in found["few"].items():
        many = found["many"][name]
        ratios[name] = median(m / f for m, f in zip(many, few, strict=True))
        print(f"  {name:24}{median(few):8.1f}{median(many):8.1f}{ratios[name]:8.2f}")
    print(f"  {a_permit:.0f} bytes of the server a permit")
    assert a_permit < 1_000
    assert {name: ratio for name, ratio in ratios.items() if ratio > MOST_GROWTH} == {}


def test_what_it_costs_to_keep_the_leases_of_ten_thousand_jobs(database: Database) -> None:
    """As ten worker processes do, three times a lease: a thousand jobs each, claimed 32 at a time."""
    batch_id = submit(database, POOLS * MANY).batch_id
    of_workers: list[set[str]] = []
    for number in range(POOLS):
        jobs = [job for _ in range(MANY // 32 + 1) for job in claim(database, batch_id, 32, f"worker-{number}")]
        of_workers.append({job.lease_token for job in jobs})
    taken_ms = []
    for _ in range(ROUNDS):
        for tokens in of_workers:
            began = time.perf_counter()
            renewed = claims.renew(database, tokens, WORKER_LEASE_SECONDS)
            taken_ms.append((time.perf_counter() - began) * 1e3)
            assert renewed
    each, longest = median(taken_ms), max(taken_ms)
    share = POOLS * each / 1e3 / (WORKER_LEASE_SECONDS / 3)
    print(
        f"\n{database.dialect}: renewing the jobs of one of {POOLS} workers: {each:.0f} ms, at most {longest:.0f}; "
        f"all of them take {share:.1%} of one writer's time"
    )
    assert longest / 1e3 * POOLS < WORKER_LEASE_SECONDS / 3


POOL = """
[[pool]]
name = "{name}"
base_url = "{base_url}"
model = "test-model"
engine = "vllm"
capacity = {{ slots = 2000, tokens = 4000000 }}
protected = {{ interactive = {{ slots = 500, tokens = 1000000 }}, batch = {{ slots = 10, tokens = 20000 }} }}
[[pool.signal]]
type = "ledger"
[[pool.signal]]
type = "engine"
"""
HEAD = """
timezone = "Europe/Berlin"
home = "home"
[source]
path = "tickets.csv"
[classification]
instructions = "You sort a shop's support tickets."
labels = { billing = "about billing", shipping = "about shipping" }
"""


def cores(processes: Sequence[psutil.Process], seconds: float) -> list[float]:
    """What each process uses of a core over a while."""

    def spent() -> list[float]:
        return [sum(process.cpu_times()[:2]) for process in processes]

    before, began = spent(), time.perf_counter()
    time.sleep(seconds)
    elapsed = time.perf_counter() - began
    return [(after - at) / elapsed for after, at in zip(spent(), before, strict=True)]


@pytest.mark.parametrize("count", [FEW, MANY])
def test_what_a_scheduler_costs(valkey: ValkeyServer, tmp_path: Path, count: int) -> None:
    async def watched() -> list[float]:
        async with pools(valkey, "pool", count) as held, AsyncExitStack() as stack:
            for each in held:
                await stack.enter_async_context(one_chat_waits(each))
            scheduler = night.start("scheduler")
            await asyncio.to_thread(wait_until, lambda: "leads, epoch" in scheduler.err, "the scheduler to lead", 30)
            return await asyncio.to_thread(cores, [psutil.Process(scheduler.pid), server], WATCHED_SECONDS)

    assert valkey.process is not None
    server = psutil.Process(valkey.process.pid)
    night = Night(tmp_path)
    with EngineProcess() as engine:
        pool_texts = [POOL.format(name=pool_name("pool", n), base_url=engine.base_url) for n in range(POOLS)]
        (tmp_path / "tickets-batch.toml").write_text(HEAD + "".join(pool_texts), encoding="utf-8")
        night.environment["TICKETS_BATCH__REDIS_URL"] = valkey.url
        night.tickets(["I was charged twice."] * 100)
        try:
            night.run("submit", "--all", "--deadline", "none")
            used, used_of_server = asyncio.run(watched())
        finally:
            night.close()
    print(
        f"\n{POOLS} pools with {count:,} permits each: "
        f"the scheduler takes {used:.1%} of a core, Valkey {used_of_server:.1%}"
    )
    assert used < 1
