"""Something that a night needs is gone for a while: work pauses and goes on by itself, and nothing is lost.

Every scene ends with the same reckoning: each ticket is done, and was answered once.
"""

import asyncio
import os
import signal
import socket
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, closing, contextmanager
from itertools import pairwise
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest

from jobs.spec import ClassificationSpec
from jobs.states import BatchState
from jobs.store import clock, events, moves
from jobs.store.database import Database
from scheduler.permit import PublishedLimit
from scheduler.simulation.engine.profile import EngineProfile
from tests.engine.answer import ticket_hash
from tests.engine.log import decode
from tests.engine.process import EngineProcess, EngineThread
from tests.support.aftermath import aftermath, answered, symptoms
from tests.support.databases import PostgreSQL
from tests.support.promise import UNFLUSHED
from tests.support.shift import POOL, SPEC, Shift, at_work, play, pool_settings, with_spec
from tests.support.skipping import RunningClock
from tests.support.valkey import ValkeyServer
from tests.support.wait import wait_until_async
from workers.health import EndpointHealth

pytest_plugins = ["tests.support.skipping_fixtures"]

SLOTS = POOL.most_batch.slots
QUICK = EngineProfile().changed({"step_base_seconds": 0.01})
"""A tenth of a second a ticket: an outage finds sixteen of them in flight."""


@pytest.fixture
def engine() -> Iterator[EngineThread]:
    with EngineThread(QUICK) as running:
        yield running


def bodies(count: int) -> list[str]:
    return [f"Where is parcel {number}?" for number in range(count)]


@asynccontextmanager
async def working(shift: Shift) -> AsyncIterator[None]:
    """Task after task in the background; in the end the batch ends by itself."""

    async def work() -> None:
        while True:
            await shift.drive(seconds=2.0)
            await asyncio.sleep(0.02)  # as a worker, which waits for its next message

    async with asyncio.TaskGroup() as group:
        task = group.create_task(work())
        yield
        await wait_until_async(lambda: shift.batch().state.is_final, "the batch to end", 30)
        task.cancel()


async def is_under_way(shift: Shift, finished: int = 20) -> None:
    await wait_until_async(lambda: shift.batch().succeeded >= finished, "the work to be under way", 20)


async def is_idle(shift: Shift) -> None:
    await wait_until_async(lambda: shift.executor.in_flight == 0, "nothing to be in flight any more", 20)


async def is_blocked(shift: Shift) -> str:
    return str(await wait_until_async(lambda: shift.batch().blocked, "the batch to be blocked"))


def assert_all_answered_once(shift: Shift, engine: EngineProcess | EngineThread, texts: Sequence[str]) -> None:
    seen = aftermath(shift.db, shift.batch_id)
    assert seen.batch.state is BatchState.COMPLETED
    assert seen.states == {"succeeded": len(texts)}
    assert answered(engine, texts) == [1] * len(texts)


# The engine.


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def attempts_in_vain(shift: Shift) -> int:
    return sum(len(seen) for seen in symptoms(shift.db, shift.batch_id).values())


def test_an_engine_that_starts_a_little_late_is_waited_for(database: Database, valkey: ValkeyServer) -> None:
    texts, port = bodies(200), free_port()

    async def scene(stack: ExitStack) -> None:
        async with at_work(database, valkey, f"http://127.0.0.1:{port}/v1", texts) as shift:
            async with working(shift):
                await wait_until_async(lambda: attempts_in_vain(shift) > 0, "calls in vain")
                engine = stack.enter_context(EngineThread(EngineProfile.instant(), port=port))
            assert_all_answered_once(shift, engine, texts)
            seen = aftermath(database, shift.batch_id)
            assert set(seen.spent) == {1}
            in_vain = Counter(symptom for made in seen.symptoms.values() for symptom in made)
            assert in_vain["unreachable"] <= SLOTS + 3
            assert "blocked" not in {event.kind for event in events.recent(database, shift.batch_id)}

    with ExitStack() as stack:
        play(lambda: scene(stack))


def test_an_engine_that_is_away_for_long_blocks_the_batch_until_it_is_back(
    skipping_database: Database, running_clock: RunningClock, valkey: ValkeyServer
) -> None:
    texts, port = bodies(200), free_port()

    async def scene(stack: ExitStack) -> None:
        async with at_work(skipping_database, valkey, f"http://127.0.0.1:{port}/v1", texts) as shift:
            shift.endpoint.health = EndpointHealth(running_clock.monotonic)
            async with working(shift):
                await wait_until_async(lambda: attempts_in_vain(shift) > 0, "calls in vain")
                running_clock.skip(11)
                assert f"/127.0.0.1:{port}/v1, and that its engine runs: connection refused" in await is_blocked(shift)
                tried = attempts_in_vain(shift)
                assert tried <= SLOTS + 3
                running_clock.skip(6)
                await wait_until_async(lambda: attempts_in_vain(shift) == tried + 1, "one probe")
                await wait_until_async(lambda: shift.batch().running == 0, "the probe to come back")
                engine = stack.enter_context(EngineThread(EngineProfile.instant(), port=port))
                running_clock.skip(11)
            assert_all_answered_once(shift, engine, texts)
            assert set(aftermath(skipping_database, shift.batch_id).spent) == {1}

    with ExitStack() as stack:
        play(lambda: scene(stack))


def test_an_engine_that_dies_and_is_started_again_costs_one_attempt_at_most(
    skipping_database: Database, running_clock: RunningClock, valkey: ValkeyServer, tmp_path: Path
) -> None:
    texts, port = bodies(200), free_port()

    async def scene(stack: ExitStack) -> None:
        log_path = tmp_path / "engine.log"  # of both
        dying = stack.enter_context(EngineProcess(QUICK, port=port, log_path=log_path))
        async with at_work(skipping_database, valkey, dying.base_url, texts) as shift:
            async with working(shift):
                await is_under_way(shift)
                dying.kill()
                await is_idle(shift)
                stack.enter_context(EngineProcess(QUICK, port=port, log_path=log_path))
                running_clock.skip(6)
            seen = aftermath(skipping_database, shift.batch_id)
            assert seen.states == {"succeeded": 200}
            assert max(seen.spent) <= 2
            assert sum(seen.spent) <= 200 + SLOTS
            paid = Counter(row.ticket for row in decode(log_path.read_bytes()) if row.outcome == "ok")
            assert set(paid) == {ticket_hash(text) for text in texts}
            assert paid.total() <= 200 + SLOTS

    with ExitStack() as stack:
        play(lambda: scene(stack))


@pytest.mark.rare
def test_a_frozen_engine_costs_one_attempt_at_most(
    skipping_database: Database, running_clock: RunningClock, valkey: ValkeyServer
) -> None:
    texts = bodies(200)

    async def scene(engine: EngineProcess) -> None:
        pool = pool_settings(engine.base_url, request_timeout_seconds=1)
        async with at_work(skipping_database, valkey, "", texts, pool=pool) as shift:
            async with working(shift):
                await is_under_way(shift)
                engine.pause()
                assert "within 1 s" in await is_blocked(shift)
                await is_idle(shift)
                engine.resume()
                running_clock.skip(6)
            seen = aftermath(skipping_database, shift.batch_id)
            assert seen.states == {"succeeded": 200}
            assert max(seen.spent) <= 2
            paid = answered(engine, texts)
            assert min(paid) == 1
            assert sum(paid) <= 200 + SLOTS

    with EngineProcess(QUICK) as engine:
        play(lambda: scene(engine))


def test_a_withdrawn_request_keeps_its_permit_for_as_long_as_the_engine_may_work_on_it(
    database: Database, valkey: ValkeyServer, engine: EngineThread
) -> None:
    engine.set_profile(step_base_seconds=0.3)
    engine.change_settings(answer_tokens=24)  # the one that may stay does not end before the others
    texts = [f"[[fault:late_abort seconds=1]] Where is parcel {number}?" for number in range(40)]
    pool = pool_settings(engine.base_url, engine="sglang")  # of which nobody knows when it notices

    async def scene() -> None:
        async with at_work(database, valkey, "", texts, pool=pool) as shift:
            driving = asyncio.create_task(shift.drive())
            await wait_until_async(lambda: engine.state()["running"] == SLOTS, "all slots to be taken")
            await shift.ledger.publish(PublishedLimit(POOL.floor, 2_000), ttl_seconds=60, leader_epoch=2)
            await wait_until_async(lambda: shift.is_pulled_back(SLOTS - 1), "the withdrawals")
            assert engine.state()["running"] == SLOTS  # ghosts
            assert (await shift.ledger.snapshot()).reclaiming.slots == SLOTS - 1

            async def are_gone() -> bool:
                counted = (await shift.ledger.snapshot()).batch.slots
                running = engine.state()["running"]
                assert counted >= running
                return bool(running == 1)

            await wait_until_async(are_gone, "the ghosts to be gone")
            assert (await shift.ledger.snapshot()).reclaiming.slots == SLOTS - 1
            await shift.executor.stop(grace_seconds=0)
            await driving
            assert max(aftermath(database, shift.batch_id).spent) == 0

    play(scene)


def test_an_answer_that_was_cut_off_keeps_its_permit_for_a_while(
    database: Database, valkey: ValkeyServer, engine: EngineThread
) -> None:
    engine.set_profile(abort_delay_steps=20)
    spec = ClassificationSpec(labels=SPEC.labels, max_output_tokens=400)

    async def scene() -> None:
        async with at_work(
            database, valkey, engine.base_url, ["[[fault:white_space times=1]]"], **with_spec(spec)
        ) as shift:

            async def is_draining() -> bool:
                return (await shift.ledger.snapshot()).reclaiming.slots == 1

            async with working(shift):
                await wait_until_async(is_draining, "the cut answer's permit to drain")
                assert engine.state()["running"] == 1
            assert shift.batch().succeeded == 1

    play(scene)


# Redis.


def test_a_redis_that_restarts_empty_withdraws_nothing_and_starts_at_the_floor(
    database: Database, valkey: ValkeyServer, engine: EngineThread
) -> None:
    engine.set_profile(step_base_seconds=0.05)
    engine.change_settings(answer_tokens=20)
    texts = bodies(60)
    window: list[float] = []

    async def scene() -> None:
        async with at_work(database, valkey, engine.base_url, texts, permit_lease_seconds=2.0) as shift:
            async with working(shift):
                await wait_until_async(lambda: engine.state()["running"] == SLOTS, "all slots to be taken")
                await asyncio.to_thread(valkey.kill)
                window.append(time.time())
                await asyncio.to_thread(valkey.start)
                await shift.ledger.publish(
                    PublishedLimit(POOL.most_batch, POOL.most_batch.tokens), ttl_seconds=60, leader_epoch=1
                )

                async def is_settled() -> bool:
                    return (await shift.ledger.snapshot()).limit_is_published

                await wait_until_async(is_settled, "one lease to pass")
                with valkey.client() as client:
                    window.append(int(str(client.hget("tickets-batch:{gpu}:epoch", "settled_at"))) / 1000)
                engine.set_profile(step_base_seconds=0.01)
            assert_all_answered_once(shift, engine, texts)
            seen = aftermath(database, shift.batch_id)
            assert set(seen.spent) == {1}
            assert seen.batch.yields == 0

    play(scene)
    began, settled = window
    meanwhile = sorted(
        (row.arrived_at, row.ended_at or 0.0) for row in engine.log() if began < row.arrived_at < settled
    )
    assert all(ended <= next_began for (_, ended), (next_began, _) in pairwise(meanwhile))


@pytest.mark.rare
def test_a_frozen_redis_costs_no_answer(sqlite_url: str, valkey: ValkeyServer, engine: EngineThread) -> None:
    texts = bodies(80)
    database = Database.open(sqlite_url)
    assert valkey.process is not None
    server = valkey.process

    async def scene() -> None:
        async with at_work(database, valkey, engine.base_url, texts, permit_lease_seconds=2.0) as shift:
            async with working(shift):
                await is_under_way(shift)
                engine.set_profile(step_base_seconds=0.8)  # what is half done ends soon, the rest not within a lease
                server.send_signal(signal.SIGSTOP)
                try:
                    await is_idle(shift)
                    await wait_until_async(lambda: shift.batch().yields > 0, "what was withdrawn to be yielded")
                finally:
                    server.send_signal(signal.SIGCONT)
                engine.set_profile(step_base_seconds=0.01)
            assert_all_answered_once(shift, engine, texts)
            assert set(aftermath(database, shift.batch_id).spent) == {1}

    play(scene)
    database.dispose()


# The database.


@pytest.fixture
def often_read_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """The database's time is read again at nearly every look, so that no outage passes unnoticed between two."""
    monkeypatch.setattr(clock, "REREAD_SECONDS", 0.05)


@pytest.fixture
def restarted(postgresql: PostgreSQL, postgresql_url: str) -> Iterator[PostgreSQL]:
    """The server, for a test that stops it: afterwards it runs, whatever happened, and its database can be dropped."""
    yield postgresql
    postgresql.start()


@pytest.mark.usefixtures("often_read_clock")
def test_a_database_that_is_stopped_and_started_again_costs_no_answer(
    restarted: PostgreSQL, postgresql_url: str, valkey: ValkeyServer, engine: EngineThread
) -> None:
    texts = bodies(200)
    database = Database.open(postgresql_url)

    async def scene() -> None:
        async with at_work(database, valkey, engine.base_url, texts) as shift:
            async with working(shift):
                await is_under_way(shift)
                await asyncio.to_thread(restarted.stop)
                await is_idle(shift)
                unwritten = len(engine.log())
                await asyncio.to_thread(restarted.start)
                assert unwritten - shift.batch().succeeded <= UNFLUSHED + SLOTS
                assert unwritten < len(texts)
            assert_all_answered_once(shift, engine, texts)
            assert set(aftermath(database, shift.batch_id).spent) == {1}

    play(scene)
    database.dispose()


@pytest.mark.usefixtures("often_read_clock")
def test_a_batch_can_still_be_cancelled_after_the_database_was_away(
    restarted: PostgreSQL, postgresql_url: str, valkey: ValkeyServer, engine: EngineThread
) -> None:
    engine.set_profile(step_base_seconds=0.5)
    engine.change_settings(answer_tokens=24)
    database = Database.open(postgresql_url)

    async def scene() -> None:
        async with at_work(database, valkey, engine.base_url, bodies(40), lease_seconds=60) as shift:
            async with working(shift):
                await wait_until_async(lambda: shift.executor.in_flight == SLOTS, "all slots to be taken")
                await asyncio.to_thread(restarted.stop)
                await asyncio.to_thread(restarted.start)
                assert shift.executor.in_flight == SLOTS
                await asyncio.to_thread(moves.cancel, database, shift.batch_id)
            assert aftermath(database, shift.batch_id).states == {"cancelled": 40}

    play(scene)
    database.dispose()


@contextmanager
def frozen(server: PostgreSQL) -> Iterator[None]:
    """Every process of the server stands still, for five seconds at most."""
    postmaster = psutil.Process(server.pid)
    processes = [postmaster, *postmaster.children()]

    def thaw() -> None:
        for process in processes:
            os.kill(process.pid, signal.SIGCONT)

    rescue = threading.Timer(5.0, thaw)
    rescue.start()
    for process in processes:
        os.kill(process.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        rescue.cancel()
        thaw()


@pytest.mark.usefixtures("often_read_clock")
def test_a_frozen_database_does_not_hold_up_the_event_loop(
    postgresql: PostgreSQL, postgresql_url: str, valkey: ValkeyServer, engine: EngineThread
) -> None:
    texts = bodies(200)
    database = Database.open(postgresql_url)
    gaps: list[float] = []

    async def tick() -> None:
        before = time.monotonic()
        while True:
            await asyncio.sleep(0.02)
            now = time.monotonic()
            gaps.append(now - before)
            before = now

    async def scene() -> None:
        async with at_work(database, valkey, engine.base_url, texts) as shift:
            async with working(shift):
                await is_under_way(shift)
                with frozen(postgresql):
                    ticking = asyncio.create_task(tick())
                    await is_idle(shift)
                    ticking.cancel()
            assert_all_answered_once(shift, engine, texts)

    play(scene)
    database.dispose()
    assert max(gaps) < 1.0


def test_a_database_that_another_program_has_locked_costs_no_answer(
    sqlite_url: str, valkey: ValkeyServer, engine: EngineThread
) -> None:
    texts = bodies(200)
    database = Database.open(sqlite_url)

    async def scene() -> None:
        async with at_work(database, valkey, engine.base_url, texts) as shift:
            async with working(shift):
                await is_under_way(shift)
                with closing(sqlite3.connect(str(database.url.database), isolation_level=None)) as other:
                    other.execute("BEGIN IMMEDIATE")
                    await is_idle(shift)
                    assert len(engine.log()) < len(texts)
            assert_all_answered_once(shift, engine, texts)
            assert set(aftermath(database, shift.batch_id).spent) == {1}

    play(scene)
    database.dispose()
