"""What a holder has told, or gave back, while Redis was away or had lost its memory, is true afterwards."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from redis.asyncio import Redis

from gateway.door import Door, Visit
from scheduler.capacity import Amount, PoolCapacity
from scheduler.ledger import PREFIX, Ledger
from scheduler.permit import Ask, Kind, Permit
from tests.support.valkey import ValkeyServer
from tests.support.wait import wait_until_async
from workers.gate import Gate

POOL = PoolCapacity(Amount(20, 60_000), Amount(8, 24_000), Amount(2, 6_000))
SMALL = Ask(500, 100)


@asynccontextmanager
async def opened(server: ValkeyServer) -> AsyncIterator[Ledger]:
    ledger = Ledger.connect(server.url, "gpu", POOL)
    await ledger.found()
    yield ledger
    await ledger.aclose()


def send(server: ValkeyServer, sign: signal.Signals) -> None:
    assert server.process is not None
    os.kill(server.process.pid, sign)


async def enter(door: Door) -> Visit:
    visit = await door.enter(SMALL)
    assert isinstance(visit, Visit)
    return visit


async def hold(gate: Gate) -> Permit:
    permit = await gate.ask(SMALL)
    assert isinstance(permit, Permit)
    gate.hold(permit, lambda: None)
    return permit


def test_renewals_alone_keep_the_keys(valkey: ValkeyServer) -> None:
    async def scene() -> None:
        async with opened(valkey) as ledger:
            permit = await ledger.acquire(Kind.BATCH, SMALL)
            assert isinstance(permit, Permit)
            keys = [f"{PREFIX}:{{gpu}}:{key}" for key in ("permits", "ranks")]
            raw = Redis.from_url(valkey.url)  # the state is packed
            try:
                # Nothing was written for nine and a half minutes: the state says when the keys were last kept.
                packed = await raw.hget(keys[0], "#")
                assert isinstance(packed, bytes)
                await raw.hset(keys[0], "#", packed[:96] + bytes(8) + packed[104:])
                for key in keys:
                    await raw.pexpire(key, 30_000)
                await ledger.renew([permit])
                for key in keys:
                    assert await raw.pttl(key) > 500_000
            finally:
                await raw.aclose()

    asyncio.run(scene())


def test_a_first_token_of_the_chat_during_an_outage_is_told_afterwards(own_valkey: ValkeyServer) -> None:
    async def scene() -> None:
        async with opened(own_valkey) as ledger:
            door = Door(Ledger.connect(own_valkey.url, "gpu", POOL), 0.3)
            door.open()
            early, late = await enter(door), await enter(door)
            send(own_valkey, signal.SIGSTOP)
            try:
                door.first_token(early)  # sent, and never answered
                visit = await enter(door)
                assert visit.is_open
                assert door.is_away
                door.first_token(late)
                door.leave(visit)
            finally:
                send(own_valkey, signal.SIGCONT)

            async def none_waits() -> bool:
                return (await ledger.snapshot()).interactive_waiting == 0

            await wait_until_async(none_waits, "the first tokens to be told", timeout_seconds=10)
            seen = await ledger.snapshot()
            assert seen.interactive.slots == 2
            assert len(seen.recent) <= 1  # how long it took is not known of what is told late
            await door.aclose()

    asyncio.run(scene())


def test_a_first_token_of_batch_during_an_outage_is_told_afterwards(own_valkey: ValkeyServer) -> None:
    async def scene() -> None:
        async with opened(own_valkey) as ledger:
            gate = Gate(Ledger.connect(own_valkey.url, "gpu", POOL), "vllm")
            permit = await hold(gate)
            there, gate._ledger = gate._ledger, Ledger.connect("redis://127.0.0.1:1/0", "gpu", POOL)  # nobody listens
            await gate.first_token(permit)
            await gate._ledger.aclose()
            gate._ledger = there
            gate.open()

            async def is_read() -> bool:
                seen = await ledger.snapshot()
                return seen.prefill_tokens == 0 and seen.batch.slots == 1

            await wait_until_async(is_read, "the first token to be told", timeout_seconds=10)
            await gate.aclose()

    asyncio.run(scene())


def test_batch_that_ends_while_a_new_ledger_is_told_of_it_leaves_nothing(valkey: ValkeyServer) -> None:
    async def scene() -> None:
        async with opened(valkey) as ledger:
            gate = Gate(Ledger.connect(valkey.url, "gpu", POOL), "vllm")
            permits = [await hold(gate) for _ in range(2)]
            with valkey.client() as client:
                client.flushall()
            renewing = asyncio.create_task(gate._renew())
            await asyncio.sleep(0)  # it has asked for all of them
            for permit in permits:
                await gate.give_back(permit, aborted=False)
            await renewing
            assert (await ledger.snapshot()).batch == Amount()
            await gate.aclose()

    asyncio.run(scene())


def test_chat_that_ends_while_a_new_ledger_is_told_of_it_leaves_nothing(valkey: ValkeyServer) -> None:
    async def scene() -> None:
        async with opened(valkey) as ledger:
            door = Door(Ledger.connect(valkey.url, "gpu", POOL), 0.3)
            visits = [await enter(door) for _ in range(10)]
            with valkey.client() as client:
                client.flushall()
            renewing = asyncio.create_task(door._renew())
            await asyncio.sleep(0)
            for visit in visits[1:]:
                door.leave(visit)
            await renewing
            assert (await ledger.snapshot()).interactive == SMALL.amount
            await door.aclose()

    asyncio.run(scene())
