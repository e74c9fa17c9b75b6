"""The ledger on a real Valkey server: what the pure rule cannot show."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager

import pytest
from redis.asyncio import Redis

from scheduler.capacity import Amount, PoolCapacity
from scheduler.ledger import KEYS, PERMANENT_KEYS, PREFIX, Ledger, LedgerUnavailable
from scheduler.permit import Ask, Kind, Outlook, Permit, PublishedLimit, Reason, Refusal, Standing
from tests.support.valkey import ValkeyServer
from tests.support.wait import wait_until_async

POOL = PoolCapacity(Amount(20, 60_000), Amount(8, 24_000), Amount(2, 6_000))
SMALL = Ask(prompt_tokens=500, output_tokens=100)
STATE = "#"  # beside the permits, in the same hash
EVERYTHING = PublishedLimit(POOL.most_batch, 60_000)


@asynccontextmanager
async def opened(server: ValkeyServer, lease_seconds: float = 5.0, pool: str = "gpu") -> AsyncIterator[Ledger]:
    ledger = Ledger.connect(server.url, pool, POOL, lease_seconds)
    yield ledger
    await ledger.aclose()


async def ready(ledger: Ledger) -> None:
    """A founded ledger whose whole limit is open."""
    await ledger.found()
    assert await ledger.publish(EVERYTHING, ttl_seconds=60, leader_epoch=1)


async def take(ledger: Ledger, kind: Kind, ask: Ask = SMALL) -> Permit:
    answer = await ledger.acquire(kind, ask)
    assert isinstance(answer, Permit), answer
    return answer


def test_many_clients_asking_at_once_never_pass_the_limit_together(valkey: ValkeyServer) -> None:
    async def scene() -> None:
        async with opened(valkey) as first, opened(valkey) as second, opened(valkey) as third:
            await ready(first)
            asks = [ledger.acquire(Kind.BATCH, SMALL) for ledger in (first, second, third) for _ in range(10)]
            answers = await asyncio.gather(*asks)
            admitted = [answer for answer in answers if isinstance(answer, Permit)]
            assert len(admitted) == POOL.most_batch.slots
            assert {a.reason for a in answers if isinstance(a, Refusal)} == {Reason.PROTECTED}

    asyncio.run(scene())


def test_everything_is_free_within_one_lease_after_all_holders_died(valkey: ValkeyServer) -> None:
    async def scene() -> None:
        async with opened(valkey, lease_seconds=0.2) as ledger:
            await ready(ledger)
            for kind in (Kind.BATCH, Kind.BATCH, Kind.INTERACTIVE):
                await take(ledger, kind)

            async def is_empty() -> bool:
                seen = await ledger.snapshot()
                return seen.batch == seen.interactive == Amount()

            await wait_until_async(is_empty, "the leases to run out", timeout_seconds=1)

    asyncio.run(scene())


def test_the_dead_are_taken_off_the_books_whoever_looks_first(valkey: ValkeyServer) -> None:
    async def scene() -> None:
        async with opened(valkey, lease_seconds=0.2) as ledger:
            await ready(ledger)
            await take(ledger, Kind.BATCH)
            with valkey.client() as client:
                key = f"{PREFIX}:{{gpu}}:permits"

                async def pruned() -> bool:
                    await ledger.publish(EVERYTHING, ttl_seconds=60, leader_epoch=1)
                    return bool(client.hkeys(key) == [STATE])

                await wait_until_async(pruned, "the publisher to find the lease expired")
            assert (await ledger.snapshot()).batch == Amount()

    asyncio.run(scene())


def test_every_key_expires_but_the_named_ones(valkey: ValkeyServer) -> None:
    async def scene() -> None:
        async with opened(valkey) as ledger:
            await ready(ledger)
            await ledger.release(
                await take(ledger, Kind.BATCH)
            )  # the last one out: what comes next makes the keys anew
            permit = await take(ledger, Kind.BATCH)
            await ledger.observe(Amount(1, 1), 5)
            await ledger.pause(5)
            await ledger.first_token(permit)
            await ledger.beat()

    asyncio.run(scene())
    with valkey.client() as client:
        permanent = {key for key in client.scan_iter() if client.ttl(key) == -1}
        assert client.dbsize() == len(KEYS) - 1  # the last name is a channel
    assert permanent == {f"{PREFIX}:{{gpu}}:{key}" for key in PERMANENT_KEYS}


@pytest.mark.parametrize("step_ms", [120_000, -3_600_000])
def test_keys_in_use_are_kept_also_when_the_clock_is_set(valkey: ValkeyServer, step_ms: int) -> None:
    clock = "local function now_ms() return tonumber(redis.call('GET', 'test:now')) end"
    key = f"{PREFIX}:{{gpu}}:permits"

    async def scene() -> None:
        redis = Redis.from_url(valkey.url, decode_responses=True)
        await redis.set("test:now", 10_000_000)
        ledger = Ledger(redis, "gpu", POOL, lease_seconds=3600, clock=clock)
        permit = await take(ledger, Kind.BATCH)
        assert await redis.pexpire(key, 60_000)
        await redis.set("test:now", 10_000_000 + step_ms)
        await ledger.first_token(permit)
        assert await redis.pttl(key) > 500_000
        await ledger.aclose()

    asyncio.run(scene())


def test_scripts_that_the_server_forgot_are_loaded_again(valkey: ValkeyServer) -> None:
    async def scene() -> None:
        async with opened(valkey) as ledger:
            await ready(ledger)
            with valkey.client() as client:
                client.script_flush()
            await take(ledger, Kind.BATCH)

    asyncio.run(scene())


def test_pools_do_not_share_their_capacity(valkey: ValkeyServer) -> None:
    async def scene() -> None:
        async with opened(valkey, pool="a") as one, opened(valkey, pool="b") as other:
            await ready(one)
            await ready(other)
            for _ in range(12):
                await take(one, Kind.BATCH)
            await take(other, Kind.BATCH)
            assert (await one.snapshot()).batch.slots == 12
            assert (await other.snapshot()).batch.slots == 1

    asyncio.run(scene())


def test_permits_asked_back_are_announced_and_told_at_the_next_renewal(valkey: ValkeyServer) -> None:
    async def scene() -> None:
        async with opened(valkey) as ledger, aclosing(ledger.revocations()) as revocations:
            await ready(ledger)
            listening = asyncio.ensure_future(anext(revocations))
            with valkey.client() as client:
                await wait_until_async(lambda: client.pubsub_numsub(*client.pubsub_channels())[0:], "a subscriber")
            permits = [await take(ledger, Kind.BATCH) for _ in range(12)]
            for _ in range(9):
                await take(ledger, Kind.INTERACTIVE)
            assert await asyncio.wait_for(listening, 5) == {permits[-1].token}
            standings = await ledger.renew(permits)
            assert [token for token, standing in standings.items() if standing is Standing.REVOKED] == [
                permits[-1].token
            ]

    asyncio.run(scene())


def test_a_server_restarted_empty_keeps_batch_at_the_floor_and_takes_live_holders_back(valkey: ValkeyServer) -> None:
    async def scene() -> None:
        async with opened(valkey, lease_seconds=1.0) as ledger:
            await ready(ledger)
            held = [await take(ledger, Kind.BATCH) for _ in range(5)]
            chat = await take(ledger, Kind.INTERACTIVE)
            valkey.kill()
            with pytest.raises(LedgerUnavailable, match="check redis_url"):
                await ledger.acquire(Kind.BATCH, SMALL)
            valkey.start()
            assert await ledger.publish(EVERYTHING, ttl_seconds=60, leader_epoch=1)
            assert set((await ledger.renew([*held, chat])).values()) == {Standing.HELD}
            seen = await ledger.snapshot()
            assert (seen.batch.slots, seen.interactive.slots) == (5, 1)
            assert not seen.limit_is_published
            refused = await ledger.acquire(Kind.BATCH, SMALL)
            assert isinstance(refused, Refusal)
            assert refused.reason is Reason.LIMIT

            async def limit_is_back() -> bool:
                await ledger.renew(held)
                return (await ledger.snapshot()).limit_is_published

            await wait_until_async(limit_is_back, "one lease to pass")
            await take(ledger, Kind.BATCH)

    asyncio.run(scene())


def test_connections_that_went_stale_in_a_restart_are_replaced_without_a_word(valkey: ValkeyServer) -> None:
    async def scene() -> None:
        async with opened(valkey) as ledger:
            await asyncio.gather(*(ledger.snapshot() for _ in range(5)))
            valkey.kill()
            valkey.start()
            await asyncio.gather(*(ledger.snapshot() for _ in range(5)))

    asyncio.run(scene())


def test_a_holder_whose_permit_went_to_another_learns_that_it_is_gone(valkey: ValkeyServer) -> None:
    async def scene() -> None:
        async with opened(valkey, lease_seconds=0.2) as ledger:
            await ledger.found()
            late = [await take(ledger, Kind.BATCH) for _ in range(2)]

            async def slots_are_free() -> bool:
                return (await ledger.snapshot()).batch.slots == 0

            await wait_until_async(slots_are_free, "the leases to run out")
            await take(ledger, Kind.BATCH)
            assert set((await ledger.renew(late)).values()) == {Standing.GONE}
            await ledger.release(late[0])
            assert (await ledger.snapshot()).batch.slots == 1

    asyncio.run(scene())


def test_an_interactive_holder_goes_on_and_counts_again_after_a_stall(valkey: ValkeyServer) -> None:
    async def scene() -> None:
        async with opened(valkey, lease_seconds=0.2) as ledger:
            await ledger.found()
            chat = await take(ledger, Kind.INTERACTIVE)

            async def is_gone() -> bool:
                return (await ledger.snapshot()).interactive.slots == 0

            await wait_until_async(is_gone, "the lease to run out")
            assert await ledger.renew([chat]) == {chat.token: Standing.HELD}
            assert (await ledger.snapshot()).interactive == chat.ask.amount

    asyncio.run(scene())


def test_a_waiting_chat_request_is_seen_with_its_age(valkey: ValkeyServer) -> None:
    async def scene() -> None:
        async with opened(valkey) as ledger:
            await ledger.found()
            permit = await take(ledger, Kind.INTERACTIVE)

            async def has_waited() -> bool:
                return (await ledger.snapshot()).oldest_waiting_seconds >= 0.05

            await wait_until_async(has_waited, "the request to have waited 50 ms")
            assert (await ledger.snapshot()).interactive_waiting == 1
            await ledger.first_token(permit)
            assert (await ledger.snapshot()).interactive_waiting == 0

    asyncio.run(scene())


def test_what_an_earlier_version_left_in_redis_counts_for_nothing(valkey: ValkeyServer) -> None:
    with valkey.client() as client:
        client.hset(f"{PREFIX}:{{gpu}}:permits", "0123456789abcdef", "b 600 500 1 1764500000000 0 0 h")
        client.hset(f"{PREFIX}:{{gpu}}:limit", mapping={"slots": 12, "tokens": 9_000, "until": 9_999_999_999_999})

    async def scene() -> None:
        async with opened(valkey) as ledger:
            await ledger.found()
            assert not (await ledger.snapshot()).limit_is_published
            await ledger.publish(EVERYTHING, ttl_seconds=60, leader_epoch=1)
            permit = await take(ledger, Kind.BATCH)
            assert await ledger.renew([permit]) == {permit.token: Standing.HELD}
            assert (await ledger.snapshot()).batch == permit.ask.amount

    asyncio.run(scene())


def test_thousands_of_permits_are_renewed_at_once(valkey: ValkeyServer) -> None:
    async def scene() -> None:
        async with opened(valkey) as ledger:
            await ready(ledger)
            held = [await take(ledger, Kind.BATCH) for _ in range(2)]
            gone = [Permit(f"{n:016x}", Kind.BATCH, SMALL, held[0].epoch) for n in range(9_000)]
            standings = await ledger.renew([held[0], *gone, held[1]])
            assert [token for token, standing in standings.items() if standing is not Standing.GONE] == [
                permit.token for permit in held
            ]
            assert len(standings) == 9_002

    asyncio.run(scene())


def test_thousands_of_permits_are_asked_back_at_once(valkey: ValkeyServer) -> None:
    """More than Lua can hand to one command: by the scheduler, and for one chat request behind their prompts."""
    count, floor = 9_000, 2
    pool = PoolCapacity(Amount(count, 60 * count), Amount(1, 60), Amount(floor, 120))
    ask = Ask(50, 10)
    everything = PublishedLimit(pool.most_batch, 60 * count, Outlook(prefill_rate=1))

    async def scene() -> None:
        ledger = Ledger.connect(valkey.url, "gpu", pool, lease_seconds=300)
        await ledger.found()
        await ledger.publish(everything, ttl_seconds=300, leader_epoch=1)

        async def fill() -> None:
            for _ in range(count // 100):  # at once more would wait for those before them
                await asyncio.gather(*(ledger.acquire(Kind.BATCH, ask) for _ in range(100)))

        await fill()
        asked_back = await ledger.revoke(Amount())
        assert len(set(asked_back)) == pool.most_batch.slots - floor
        with valkey.client() as client:
            client.delete(f"{PREFIX}:{{gpu}}:permits")
        await fill()
        await take(ledger, Kind.INTERACTIVE, ask)
        assert (await ledger.snapshot()).reclaiming.slots == pool.most_batch.slots - floor
        await ledger.aclose()

    asyncio.run(scene())
