"""The Lua and the pure rule are one: the same random histories drive both, under one clock that the test moves."""

import asyncio
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis.asyncio import Redis

from scheduler.book import RECENT, Book
from scheduler.capacity import Amount, PoolCapacity, total
from scheduler.ledger import PREFIX, Ledger
from scheduler.permit import Ask, Kind, Outlook, Permit, PublishedLimit, Refusal, Standing
from tests.support.evenings import Evening
from tests.support.narrow_moments import POOL, NarrowMoments
from tests.support.valkey import ValkeyServer

LEASE_MS = 5_000
CLOCK_KEY = "test:now"
RANKS = f"{PREFIX}:{{p}}:ranks"
CLOCK = f"local function now_ms() return tonumber(redis.call('GET', '{CLOCK_KEY}')) end"
START_MS = 1_000_000_000
HOUR_MS = 3_600_000

amounts = st.builds(Amount, st.integers(0, 16), st.integers(0, 9_000))
durations = st.just(0) | st.integers(1, 600) | st.integers(1, 60_000)
streamed = st.sampled_from([True, True, True, False])
asks = st.builds(Ask, st.integers(0, 500), st.integers(1, 300), durations, streamed) | st.builds(
    Ask, st.integers(0, 4_000), st.just(100), durations
)
outlooks = st.just(Outlook()) | st.builds(
    Outlook,
    amounts,
    st.integers(0, 30_000),
    st.integers(0, 2_000),
    st.integers(0, 4),
    st.just(0) | st.integers(1, 40_000),
    st.integers(0, 3_000),
    st.just(0) | st.integers(0, 1_500),
    st.just(()) | st.tuples(amounts, amounts, amounts, amounts),
)
kinds = st.sampled_from([Kind.BATCH, Kind.BATCH, Kind.BATCH, Kind.INTERACTIVE])
which = st.integers(0, 40)
# How often each verb is drawn: `one_of` would take a strategy that is listed twice for one.
VERBS: tuple[tuple[int, st.SearchStrategy[tuple[object, ...]]], ...] = (
    (6, st.tuples(st.just("acquire"), kinds, asks)),
    (2, st.tuples(st.just("first_token"), which)),
    (2, st.tuples(st.just("revoke"), amounts)),
    (1, st.tuples(st.just("settle"), which, st.integers(0, 3_000))),
    (1, st.tuples(st.just("renew"), st.sets(which, max_size=20))),
    (1, st.tuples(st.just("release"), which)),
    (1, st.tuples(st.just("drain"), which, st.integers(1, 9_000))),
    (1, st.tuples(st.just("register"), which)),
    (
        2,
        st.tuples(
            st.just("publish"), amounts, st.integers(0, 6_000), st.integers(1, 9_000), st.integers(1, 3), outlooks
        ),
    ),
    (1, st.tuples(st.just("beat"))),
    (1, st.tuples(st.just("restart"))),
    (1, st.tuples(st.just("wait"), st.just(-HOUR_MS))),  # the clock is set back
    (1, st.tuples(st.just("refuse"))),
    (1, st.tuples(st.just("observe"), amounts, st.integers(1, 4_000))),
    (1, st.tuples(st.just("pause"), st.integers(1, 3_000))),
    (2, st.tuples(st.just("wait"), st.integers(0, 3_000) | st.just(LEASE_MS))),
)
DRAWN = [number for number, (weight, _) in enumerate(VERBS) for _ in range(weight)]
OPERATIONS = st.sampled_from(DRAWN).flatmap(lambda number: VERBS[number][1])
# Most histories begin on a busy night: the bounds that matter are far from an empty pool.
WIDE_OPEN = ("publish", Amount(99, 99_000), 99_000, 60_000, 1, Outlook(prefill_rate=10_000))
LOOKING_OUT = (
    "publish",
    Amount(99, 99_000),
    99_000,
    60_000,
    1,
    Outlook(Amount(4, 3_000), 2_000, 200, 1, 10_000, 300, 200),
)
BUSY = [WIDE_OPEN] + [("acquire", Kind.BATCH, Ask(100, 50))] * 8
BUSY_LONG = [WIDE_OPEN] + [("acquire", Kind.BATCH, Ask(100, 50, 5_000))] * 8
OPENINGS: st.SearchStrategy[list[tuple[object, ...]]] = st.sampled_from(
    [[], [WIDE_OPEN], [LOOKING_OUT], BUSY, BUSY, BUSY_LONG]
)


@st.composite
def capacities(draw: st.DrawFn) -> PoolCapacity:
    """A small pool, so that its bounds are met often."""
    floor = Amount(draw(st.integers(1, 3)), draw(st.integers(1, 2_000)))
    interactive = Amount(draw(st.integers(0, 5)), draw(st.integers(0, 3_000)))
    shared = Amount(draw(st.integers(0, 10)), draw(st.integers(0, 8_000)))
    return PoolCapacity(floor + interactive + shared, interactive, floor)


@dataclass
class Pair:
    """The ledger in Valkey and the book in memory, driven together."""

    redis: Redis
    ledger: Ledger
    book: Book
    permits: list[Permit]
    now_ms: int = START_MS
    epoch: str = ""
    has_outgrown: bool = False  # a settled or registered request may hold more than its class was promised

    async def do(self, verb: str, *arguments: object) -> None:
        await getattr(self, verb)(*arguments)
        if verb != "wait":  # reading takes expired permits off the books too: any verb must be able to be the first
            await self.compare()

    async def acquire(self, kind: Kind, ask: Ask) -> None:
        answer = await self.ledger.acquire(kind, ask)
        token = answer.token if isinstance(answer, Permit) else "refused"
        refusal, _ = self.book.acquire(token, kind, ask, self.now_ms)
        assert refusal == (answer if isinstance(answer, Refusal) else None)
        if isinstance(answer, Permit):
            self.permits.append(answer)

    async def first_token(self, n: int) -> None:
        if permit := self._nth(n):
            assert await self.ledger.first_token(permit) is self.book.first_token(permit.token, self.now_ms)

    async def settle(self, n: int, tokens: int) -> None:
        if permit := self._nth(n):
            self.has_outgrown |= tokens > permit.ask.amount.tokens
            await self.ledger.settle(permit, tokens)
            self.book.settle(permit.token, tokens, self.now_ms)

    async def renew(self, numbers: set[int]) -> None:
        # Batch alone: an interactive holder would register again, which is a verb of its own here.
        chosen = [p for n in sorted(numbers) if (p := self._nth(n)) and p.kind is Kind.BATCH]
        expected = self.book.renew([permit.token for permit in chosen], self.now_ms)
        for permit in chosen:
            if expected[permit.token] is Standing.GONE and permit.epoch != self.epoch:
                expected[permit.token] = self.book.register(permit, self.now_ms)
        assert await self.ledger.renew(chosen) == expected

    async def release(self, n: int) -> None:
        if permit := self._nth(n):
            await self.ledger.release(permit)
            self.book.release(permit.token, self.now_ms)

    async def drain(self, n: int, drain_ms: int) -> None:
        if permit := self._nth(n):
            await self.ledger.drain(permit, drain_ms / 1000)
            self.book.drain(permit.token, drain_ms, self.now_ms)

    async def register(self, n: int) -> None:
        if permit := self._nth(n):
            self.has_outgrown |= permit.kind is Kind.INTERACTIVE
            assert await self.ledger._register(permit) is self.book.register(permit, self.now_ms)

    async def revoke(self, target: Amount) -> None:
        assert await self.ledger.revoke(target) == self.book.revoke(target, self.now_ms)

    async def publish(self, limit: Amount, prefill: int, ttl_ms: int, leader: int, outlook: Outlook) -> None:
        published = PublishedLimit(limit, prefill, outlook)
        note = f"the limit of {leader}"
        expected = self.book.publish(published, ttl_ms, leader, self.now_ms, note)
        assert await self.ledger.publish(published, ttl_ms / 1000, leader, note) is expected

    async def observe(self, amount: Amount, ttl_ms: int) -> None:
        assert await self.ledger.observe(amount, ttl_ms / 1000) == self.book.observe(amount, ttl_ms, self.now_ms)

    async def refuse(self) -> None:
        await self.ledger.refuse()
        self.book.refuse()

    async def beat(self) -> None:
        await self.ledger.beat()
        self.book.beat(self.now_ms)

    async def restart(self) -> None:
        """Redis begins empty; whoever holds a permit may come back."""
        await self.redis.flushall()
        await self.redis.set(CLOCK_KEY, self.now_ms)
        self.book = Book(self.book.capacity, LEASE_MS, settled_at_ms=self.now_ms + LEASE_MS)
        self.has_outgrown = True

    async def pause(self, pause_ms: int) -> None:
        await self.ledger.pause(pause_ms / 1000)
        self.book.pause(pause_ms, self.now_ms)

    async def wait(self, ms: int) -> None:
        self.now_ms += ms
        await self.redis.set(CLOCK_KEY, self.now_ms)

    async def compare(self) -> None:
        """Both tell the same, and both keep what the design promises."""
        book, capacity = self.book, self.book.capacity
        seen, expected = await self.ledger.snapshot(), book.snapshot(self.now_ms)
        assert replace(seen, epoch="") == expected
        self.epoch = seen.epoch
        ranked: Any = await self.redis.zrangebyscore(RANKS, 0, "+inf", withscores=True)
        assert dict(ranked) == self.ranks()
        interactive, batch = book.held(Kind.INTERACTIVE), book.held(Kind.BATCH)
        if not self.has_outgrown:
            over = interactive + batch - self.drainers()
            assert over.fits(capacity.total), "over the capacity by more than what is reclaimed or about to end"
            assert interactive.fits(capacity.most_interactive), "interactive ate batch's protected share"
            assert batch.fits(capacity.most_batch), "batch ate interactive's protected share"

    def ranks(self) -> dict[str, float]:
        """What the ledger must be able to find without looking through all that is held."""
        ranks: dict[str, float] = {}
        for token, entry in self.book.entries.items():
            if entry.kind is Kind.INTERACTIVE and not entry.has_first_token:
                ranks[token] = entry.at_ms
            if entry.kind is Kind.BATCH and not entry.is_reclaiming:
                ranks[token] = (2**43 if entry.has_first_token else 2**44) + entry.order
                if entry.expected_ms:
                    ranks[f"~{token}"] = 2**42 + entry.at_ms + entry.expected_ms
        return ranks

    def drainers(self) -> Amount:
        """What batch holds that is left to end by itself: at most half a second when it was spared."""
        entries = self.book.entries.values()
        return total(e.amount for e in entries if e.kind is Kind.BATCH and not e.is_reclaiming and e.expected_ms)

    def _nth(self, n: int) -> Permit | None:
        return self.permits[-1 - n % len(self.permits)] if self.permits else None  # the youngest are the likeliest


@pytest.fixture
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as made:
        yield made


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    capacity=capacities(),
    is_new=st.booleans(),
    opening=OPENINGS,
    history=st.lists(OPERATIONS, min_size=5, max_size=60),
)
def test_random_histories_agree_and_keep_the_promises(
    valkey: ValkeyServer,
    runner: asyncio.Runner,
    capacity: PoolCapacity,
    is_new: bool,
    opening: list[tuple[object, ...]],
    history: list[tuple[object, ...]],
) -> None:
    async def play() -> None:
        async with pair_of(valkey, capacity, is_new=is_new) as pair:
            for verb, *arguments in opening + history:
                await pair.do(str(verb), *arguments)

    runner.run(play())


@pytest.mark.parametrize("seed", range(24))
def test_lifelike_histories_agree(valkey: ValkeyServer, runner: asyncio.Runner, seed: int) -> None:
    """Evenings as they are, and the moments in which one token or one millisecond makes the difference."""

    async def play() -> None:
        evening = Evening(random.Random(seed))
        async with pair_of(valkey, evening.pool, is_new=False) as pair:
            for _ in range(90):
                for verb, *arguments in evening.next(pair.book, pair.now_ms):
                    await pair.do(verb, *arguments)

    runner.run(play())


@pytest.mark.parametrize("seed", range(8))
def test_narrow_moments_agree(valkey: ValkeyServer, runner: asyncio.Runner, seed: int) -> None:
    async def play() -> None:
        moments = NarrowMoments(random.Random(seed))
        async with pair_of(valkey, POOL, is_new=False) as pair:
            for _ in range(100):
                for verb, *arguments in moments.next():
                    await pair.do(verb, *arguments)

    runner.run(play())


def test_both_remember_the_same_last_first_tokens(valkey: ValkeyServer, runner: asyncio.Runner) -> None:
    async def play() -> None:
        async with pair_of(
            valkey, PoolCapacity(Amount(4, 4_000), Amount(1, 100), Amount(2, 200)), is_new=False
        ) as pair:
            for n in range(RECENT + 3):
                await pair.acquire(Kind.INTERACTIVE, Ask(n, 1))
                await pair.wait(n % 7)
                await pair.first_token(0)
                await pair.release(0)
            await pair.compare()
            assert len(pair.book.recent) == RECENT

    runner.run(play())


@asynccontextmanager
async def pair_of(valkey: ValkeyServer, capacity: PoolCapacity, *, is_new: bool) -> AsyncIterator[Pair]:
    """A ledger and a book that begin alike; afterwards, when every lease has run out, nothing may be left."""
    redis = Redis.from_url(valkey.url, decode_responses=True)
    await redis.flushall()
    await redis.set(CLOCK_KEY, START_MS)
    ledger = Ledger(redis, "p", capacity, LEASE_MS / 1000, clock=CLOCK)
    pair = Pair(redis, ledger, Book(capacity, LEASE_MS), [])
    if is_new:
        pair.book.settled_at_ms = START_MS + LEASE_MS
    else:
        await ledger.found()
    try:
        await pair.compare()
        yield pair
        await pair.compare()  # looked at, should the clock have been set back last
        await pair.wait(10_000)  # longer than any lease or drain: every holder is dead
        await pair.compare()
        assert pair.book.entries == {}
    finally:
        await ledger.aclose()
