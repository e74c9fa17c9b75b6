"""A batch with an ordered list of pools: the first that admits takes the job, and one that is broken stands alone."""

import asyncio
import logging
import re
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import pairwise

import pytest

from jobs.store import events
from jobs.store.database import Database
from scheduler.estimate import WINDOW
from scheduler.permit import Ask, Kind, Permit, PublishedLimit
from scheduler.simulation.engine.profile import EngineProfile
from tests.engine.faults import Fault, Rule
from tests.engine.process import EngineThread
from tests.support.aftermath import aftermath, answered
from tests.support.several_pools import PoolsShift, at_several_pools
from tests.support.shift import POLICY, POOL, play
from tests.support.skipping import RunningClock
from tests.support.valkey import ValkeyServer
from tests.support.wait import wait_until_async

pytest_plugins = ["tests.support.skipping_fixtures"]

Engines = dict[str, EngineThread]


@pytest.fixture
def engines() -> Iterator[Engines]:
    with ExitStack() as stack:
        yield {name: stack.enter_context(EngineThread(EngineProfile.instant())) for name in ("own", "shared")}


def bodies(count: int) -> list[str]:
    return [f"Where is parcel {number}?" for number in range(count)]


def total_answered(engines: Engines, texts: list[str]) -> list[int]:
    return [sum(counts) for counts in zip(*(answered(engine, texts) for engine in engines.values()), strict=True)]


def kinds_of_events(db: Database, batch_id: str) -> list[str]:
    return [event.kind for event in reversed(events.recent(db, batch_id))]


def test_the_first_pool_that_admits_takes_the_job_and_the_next_what_it_has_no_room_for(
    database: Database, valkey: ValkeyServer, engines: Engines
) -> None:
    texts = bodies(40)
    for engine in engines.values():
        engine.set_profile(step_base_seconds=0.05)

    async def scene() -> None:
        async with at_several_pools(database, valkey, engines, texts) as shift:
            await shift.ledgers["own"].publish(PublishedLimit(POOL.floor, 2_000), ttl_seconds=60, leader_epoch=2)
            driving = asyncio.create_task(shift.drive())
            await wait_until_async(lambda: engines["shared"].busy() >= 3, "the second pool to be used")
            assert engines["own"].busy() <= 1
            await driving
            await shift.finish()
            assert aftermath(database, shift.batch_id).states == {"succeeded": 40}
            assert total_answered(engines, texts) == [1] * 40
            first, second = (engines[name].log() for name in ("own", "shared"))
            assert first[0].arrived_at <= min(row.arrived_at for row in second)
            overlaps = [1 for row, later in pairwise(first) if row.ended_at and later.arrived_at < row.ended_at]
            assert overlaps == []

    play(scene)


def test_while_the_first_pool_has_room_the_second_gets_nothing(
    database: Database, valkey: ValkeyServer, engines: Engines
) -> None:
    async def scene() -> None:
        async with at_several_pools(database, valkey, engines, bodies(100)) as shift:
            while not shift.batch().state.is_final:
                await shift.drive(seconds=2.0, at_once=POOL.most_batch.slots)
            assert len(engines["own"].log()) == 100
            assert engines["shared"].log() == []

    play(scene)


@pytest.mark.parametrize("kind", ["401", "403", "404"])
def test_a_pool_that_refuses_everyone_blocks_itself_and_not_the_batch(
    kind: str, database: Database, valkey: ValkeyServer, engines: Engines, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    texts = bodies(400)
    clock = RunningClock()
    engines["own"].set_faults(Rule(Fault(kind)))
    engines["shared"].set_profile(step_base_seconds=0.02)

    async def scene() -> None:
        async with at_several_pools(database, valkey, engines, texts, clock=clock) as shift:
            finishing = asyncio.create_task(shift.finish())
            await wait_until_async(lambda: shift.batch().succeeded > 20, "the second pool to work")
            await wait_until_async(lambda: shift.endpoint.health.probes == 1, "the first pool to be blocked")
            first_wave = len(engines["own"].log())
            assert 1 <= first_wave <= POOL.most_batch.slots
            clock.skip(5.1)
            await wait_until_async(lambda: shift.endpoint.health.probes == 2, "the probe")
            assert len(engines["own"].log()) == first_wave + 1
            engines["own"].set_faults()
            clock.skip(10.1)
            await wait_until_async(lambda: answered(engines["own"], texts).count(1) > 3, "the first pool to work again")
            await finishing
            seen = aftermath(database, shift.batch_id)
            assert seen.states == {"succeeded": 400}
            assert set(seen.spent) == {1}
            assert total_answered(engines, texts) == [1] * 400
            assert not {"blocked", "unblocked"} & set(kinds_of_events(database, shift.batch_id))

    play(scene)
    said = [record.getMessage() for record in caplog.records if record.getMessage().startswith("pool own")]
    assert len(said) == 2
    assert said[0].startswith(f"pool own gets no more jobs but probes: HTTP {kind}")
    assert said[1] == "pool own gets jobs again"


def test_a_pool_that_fails_every_job_costs_attempts_once_and_the_others_work_on(
    database: Database, valkey: ValkeyServer, engines: Engines
) -> None:
    texts = bodies(150)
    engines["own"].set_faults(Rule(Fault("500")))

    async def scene() -> None:
        async with at_several_pools(database, valkey, engines, texts) as shift:
            await shift.finish()
            seen = aftermath(database, shift.batch_id)
            assert seen.states == {"succeeded": 150}
            assert max(seen.spent) < POLICY.attempts
            assert len(engines["own"].log()) <= 10 + POOL.most_batch.slots
            assert answered(engines["shared"], texts) == [1] * 150
            assert "blocked" not in kinds_of_events(database, shift.batch_id)

    play(scene)


@pytest.mark.parametrize("mended", ["own", "shared"])
def test_only_when_every_pool_refuses_is_the_batch_blocked_and_one_that_works_again_is_enough(
    mended: str,
    skipping_database: Database,
    running_clock: RunningClock,
    valkey: ValkeyServer,
    engines: Engines,
) -> None:
    texts = bodies(60)
    for engine in engines.values():
        engine.set_faults(Rule(Fault("401")))

    async def drive_and_write(shift: PoolsShift) -> None:
        await shift.drive(seconds=2.0)
        await wait_until_async(lambda: shift.batch().running == 0, "everything to be written")

    async def scene() -> None:
        async with at_several_pools(skipping_database, valkey, engines, texts) as shift:
            while shift.batch().blocked is None:
                await drive_and_write(shift)
            assert sum(len(engine.log()) for engine in engines.values()) <= 2 * POOL.most_batch.slots
            blocked = aftermath(skipping_database, shift.batch_id)
            assert (blocked.states, set(blocked.spent)) == ({"pending": 60}, {0})
            engines[mended].set_faults()
            for wait_seconds in (5.1, 10.1):  # the pools take turns at being probed
                if shift.batch().blocked:
                    running_clock.skip(wait_seconds)
                    await drive_and_write(shift)
            assert shift.batch().blocked is None
            await shift.finish()
            seen = aftermath(skipping_database, shift.batch_id)
            assert (seen.states, set(seen.spent)) == ({"succeeded": 60}, {1})
            assert answered(engines[mended], texts) == [1] * 60
            assert kinds_of_events(skipping_database, shift.batch_id)[-3:] == ["blocked", "unblocked", "completed"]

    play(scene)


def test_a_ticket_that_fits_none_of_the_pools_fails_though_one_needs_less_than_another_may_hold(
    sqlite_url: str, valkey: ValkeyServer, engines: Engines
) -> None:
    small = {
        "capacity": {"slots": 20, "tokens": 20_000},
        "protected": {"interactive": {"slots": 4, "tokens": 4_000}, "batch": {"slots": 1, "tokens": 2_000}},
    }
    database = Database.open(sqlite_url)

    async def scene() -> None:
        texts = ["x" * 184_000, *bodies(20)]
        async with at_several_pools(database, valkey, engines, texts, settings={"shared": small}) as shift:
            for name, tokens in (("own", 1_100), ("shared", 1_000)):  # two tokenizers
                for _ in range(WINDOW):
                    shift.endpoints[name].estimator.learn(size=4_000, estimated=1_250, actual=tokens)
            await shift.finish()
            assert aftermath(database, shift.batch_id).states == {"succeeded": 20, "failed": 1}
            words = (
                r"too_large: of pool own it needs 50,\d{3} tokens, batch may hold 48,000; "
                r"of pool shared it needs 46,\d{3} tokens, batch may hold 16,000"
            )
            assert re.fullmatch(words, str(shift.rows()["t-0"].error))

    play(scene)
    database.dispose()


def test_a_ticket_too_large_for_the_first_pool_waits_for_the_next_and_holds_up_nobody(
    database: Database, valkey: ValkeyServer, engines: Engines
) -> None:
    huge = "x" * 80_000  # about 25,000 tokens as estimated
    texts = [huge, *bodies(50)]
    # Room for all of the others at once: what finds none there goes to the next pool.
    protected = {"interactive": {"slots": 1, "tokens": 8_000}, "batch": {"slots": 1, "tokens": 2_000}}
    small = {"capacity": {"slots": 60, "tokens": 20_000}, "protected": protected}

    async def scene() -> None:
        async with at_several_pools(database, valkey, engines, texts, settings={"own": small}) as shift:
            chat = await shift.ledgers["shared"].acquire(Kind.INTERACTIVE, Ask(50_000, 100, streamed=False))
            assert isinstance(chat, Permit)
            driving = asyncio.create_task(shift.drive())
            await wait_until_async(lambda: shift.batch().succeeded == 50, "all but the huge one")
            assert answered(engines["own"], texts) == [0] + [1] * 50
            await shift.ledgers["shared"].release(chat)
            await driving
            await shift.finish()
            assert answered(engines["shared"], texts) == [1] + [0] * 50

    play(scene)
