"""The clock of Redis is set back by an hour: what was to end in a moment does so, and does not wait for the hour."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from redis import Redis

from scheduler.capacity import Amount, PoolCapacity
from scheduler.ledger import Ledger
from scheduler.line import connect
from scheduler.permit import Ask, Kind, Permit, PublishedLimit, Reason, Refusal, Standing
from tests.support.valkey import ValkeyServer

POOL = PoolCapacity(Amount(20, 60_000), Amount(8, 24_000), Amount(2, 6_000))
SMALL = Ask(500, 100)
EVERYTHING = PublishedLimit(POOL.most_batch, 60_000)
KEY = "test:now"
CLOCK = f"local function now_ms() return tonumber(redis.call('GET', '{KEY}')) end"
START_MS = 1_790_000_000_000
HOUR_MS = 3_600_000
LEASE_MS = 5_000


@dataclass
class Hand:
    """Moves the server's clock."""

    client: "Redis"
    now_ms: int = 0

    def set(self, now_ms: int) -> None:
        self.now_ms = now_ms
        self.client.set(KEY, now_ms)

    def wait(self, ms: int) -> None:
        self.set(self.now_ms + ms)


@asynccontextmanager
async def opened(server: ValkeyServer, *, is_new: bool = False) -> AsyncIterator[tuple[Ledger, Hand]]:
    """A ledger, founded and its whole limit open if it is not to be new, and the hand on its clock."""
    ledger = Ledger(connect(server.url), "gpu", POOL, clock=CLOCK)
    with server.client() as client:
        hand = Hand(client)
        hand.set(START_MS)
        if not is_new:
            await ledger.found()
            await ledger.publish(EVERYTHING, ttl_seconds=3, leader_epoch=1)
        yield ledger, hand
    await ledger.aclose()


async def take(ledger: Ledger, kind: Kind, count: int) -> list[Permit]:
    answers = [await ledger.acquire(kind, SMALL) for _ in range(count)]
    assert all(isinstance(answer, Permit) for answer in answers), answers
    return [answer for answer in answers if isinstance(answer, Permit)]


def test_a_pause_does_not_last_the_hour(valkey: ValkeyServer) -> None:
    async def scene() -> None:
        async with opened(valkey) as (ledger, hand):
            await ledger.pause(1.0)
            hand.wait(-HOUR_MS)
            await take(ledger, Kind.BATCH, 1)
            await ledger.pause(2.0)
            refusal = await ledger.acquire(Kind.BATCH, SMALL)
            assert isinstance(refusal, Refusal)
            assert (refusal.reason, refusal.retry_after_seconds) == (Reason.PAUSED, 2.0)

    asyncio.run(scene())


def test_a_new_pause_is_not_taken_for_shorter_than_one_from_before(valkey: ValkeyServer) -> None:
    async def scene() -> None:
        async with opened(valkey) as (ledger, hand):
            await ledger.pause(1.0)
            hand.wait(-HOUR_MS)
            await ledger.pause(2.0)
            assert (await ledger.snapshot()).paused_seconds == 2.0

    asyncio.run(scene())


def test_a_new_ledger_settles(valkey: ValkeyServer) -> None:
    async def scene() -> None:
        async with opened(valkey, is_new=True) as (ledger, hand):
            await take(ledger, Kind.INTERACTIVE, 1)
            hand.wait(-HOUR_MS)
            hand.wait(LEASE_MS)
            await ledger.publish(EVERYTHING, ttl_seconds=3, leader_epoch=1)
            seen = await ledger.snapshot()
            assert seen.limit_is_published
            assert seen.limit == POOL.most_batch

    asyncio.run(scene())


def test_the_last_limit_of_a_dead_scheduler_is_never_in_force_again(valkey: ValkeyServer) -> None:
    async def scene() -> None:
        async with opened(valkey) as (ledger, hand):
            await ledger.observe(Amount(15, 15_000), ttl_seconds=3)
            hand.wait(-HOUR_MS)
            for _ in range(2):  # nor when the clock comes by that time once more
                seen = await ledger.snapshot()
                assert not seen.limit_is_published
                assert not seen.observed_is_fresh
                assert seen.limit == POOL.floor
                hand.wait(HOUR_MS)

    asyncio.run(scene())


def test_what_the_dead_held_and_what_drains_is_free_within_one_lease(valkey: ValkeyServer) -> None:
    async def scene() -> None:
        async with opened(valkey) as (ledger, hand):
            for permit in (await take(ledger, Kind.BATCH, 6))[:3]:
                await ledger.drain(permit, 0.3)
            await take(ledger, Kind.INTERACTIVE, 8)
            hand.wait(-HOUR_MS)
            seen = await ledger.snapshot()
            assert (seen.batch.slots, seen.interactive.slots) == (6, 8)  # may be alive
            hand.wait(LEASE_MS)
            await take(ledger, Kind.INTERACTIVE, 18)
            assert (await ledger.snapshot()).batch.slots == 0

    asyncio.run(scene())


def test_a_live_holder_keeps_its_permit_and_a_dead_one_loses_its_own(valkey: ValkeyServer) -> None:
    async def scene() -> None:
        async with opened(valkey) as (ledger, hand):
            alive, dead = await take(ledger, Kind.BATCH, 2)
            hand.wait(-HOUR_MS)
            for _ in range(8):
                assert (await ledger.renew([alive]))[alive.token] is Standing.HELD
                hand.wait(1_000)
            assert (await ledger.renew([alive, dead])) == {alive.token: Standing.HELD, dead.token: Standing.GONE}
            assert (await ledger.snapshot()).batch.slots == 1

    asyncio.run(scene())
