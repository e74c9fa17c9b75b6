"""The gate on a real ledger: a holder learns in time that its permit is no longer its own."""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from scheduler.capacity import Amount, PoolCapacity
from scheduler.ledger import Ledger
from scheduler.permit import Ask, Kind, Permit, PublishedLimit
from tests.support.valkey import ValkeyServer
from tests.support.wait import wait_until_async
from workers.gate import Gate

POOL = PoolCapacity(Amount(6, 6_000), Amount(2, 2_000), Amount(1, 1_000))
ASK = Ask(400, 100)


@asynccontextmanager
async def opened(server: ValkeyServer, lease_seconds: float = 5.0) -> AsyncIterator[tuple[Gate, Ledger]]:
    """A gate on a founded ledger with the limit wide open, and the ledger as the chat uses it."""
    chat = Ledger.connect(server.url, "gpu", POOL, lease_seconds)
    await chat.found()
    await chat.publish(PublishedLimit(POOL.most_batch, 6_000), ttl_seconds=60, leader_epoch=1)
    gate = Gate(Ledger.connect(server.url, "gpu", POOL, lease_seconds), "vllm")
    gate.open()
    yield gate, chat
    await gate.aclose()
    await chat.aclose()


async def hold(gate: Gate, withdrawn: list[str]) -> Permit:
    permit = await gate.ask(ASK)
    assert isinstance(permit, Permit)
    gate.hold(permit, lambda: withdrawn.append(permit.token))
    return permit


async def fill_with_chat(chat: Ledger, count: int) -> None:
    for _ in range(count):
        assert isinstance(await chat.acquire(Kind.INTERACTIVE, ASK), Permit)


def test_a_permit_that_the_chat_needs_is_withdrawn_at_once(valkey: ValkeyServer) -> None:
    async def scene() -> None:
        async with opened(valkey) as (gate, chat):
            withdrawn: list[str] = []
            permits = [await hold(gate, withdrawn) for _ in range(4)]
            with valkey.client() as client:
                await wait_until_async(lambda: client.pubsub_channels(), "the gate to listen")
            await fill_with_chat(chat, 3)
            await wait_until_async(lambda: withdrawn, "the withdrawal", timeout_seconds=0.5)
            assert withdrawn == [permits[-1].token]

    asyncio.run(scene())


def test_a_gate_that_missed_the_announcement_learns_at_its_next_renewal(valkey: ValkeyServer) -> None:
    async def scene() -> None:
        async with opened(valkey) as (gate, chat):
            gate._loops[1].cancel()  # deaf
            withdrawn: list[str] = []
            permits = [await hold(gate, withdrawn) for _ in range(4)]
            await fill_with_chat(chat, 3)
            await wait_until_async(lambda: withdrawn, "the withdrawal", timeout_seconds=3)
            assert set(withdrawn) == {permits[-1].token}

    asyncio.run(scene())


def test_what_is_held_is_kept_for_longer_than_a_lease(valkey: ValkeyServer) -> None:
    async def scene() -> None:
        async with opened(valkey, lease_seconds=1.5) as (gate, chat):
            withdrawn: list[str] = []
            await hold(gate, withdrawn)
            started = asyncio.get_running_loop().time()

            async def two_leases_passed() -> bool:
                assert (await chat.snapshot()).batch.slots == 1
                return asyncio.get_running_loop().time() - started > 3

            await wait_until_async(two_leases_passed, "two leases to pass")
            assert withdrawn == []

    asyncio.run(scene())


def test_a_server_that_is_silent_for_one_lease_costs_the_holder_its_permits(valkey: ValkeyServer) -> None:
    async def scene() -> None:
        async with opened(valkey, lease_seconds=1.5) as (gate, _):
            withdrawn: list[str] = []
            permits = [await hold(gate, withdrawn) for _ in range(3)]
            assert valkey.process is not None
            valkey.process.send_signal(signal.SIGSTOP)
            try:
                everything = {permit.token for permit in permits}
                await wait_until_async(lambda: set(withdrawn) == everything, "all to be withdrawn", 20)
            finally:
                valkey.process.send_signal(signal.SIGCONT)

    asyncio.run(scene())


@pytest.mark.parametrize("aborted", [True, False])
def test_an_aborted_request_stays_counted_until_the_engine_must_have_noticed(
    valkey: ValkeyServer, aborted: bool
) -> None:
    async def scene() -> None:
        async with opened(valkey) as (gate, chat):
            permit = await hold(gate, [])
            await gate.give_back(permit, aborted=aborted)
            assert (await chat.snapshot()).reclaiming.slots == (1 if aborted else 0)

            async def is_free() -> bool:
                return (await chat.snapshot()).batch.slots == 0

            await wait_until_async(is_free, "the slot to be free", timeout_seconds=2)

    asyncio.run(scene())
