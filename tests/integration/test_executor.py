"""The executor on real servers: what was claimed is classified once, and every ending leaves nothing behind."""

import asyncio
import re
from collections.abc import Callable, Iterator
from itertools import pairwise

import pytest

from jobs.states import BatchState, JobState
from jobs.store import claims, moves
from jobs.store.database import Database
from scheduler.capacity import Amount
from scheduler.duration import DurationEstimator
from scheduler.estimate import ENOUGH
from scheduler.permit import PublishedLimit
from scheduler.simulation.engine.profile import EngineProfile
from tests.engine.process import EngineThread
from tests.support.balancer import Buffering
from tests.support.shift import LABELS, POOL, Shift, at_work, is_done, play, submit
from tests.support.valkey import ValkeyServer
from tests.support.wait import wait_until, wait_until_async


@pytest.fixture
def engine() -> Iterator[EngineThread]:
    with EngineThread(EngineProfile.instant()) as running:
        yield running


@pytest.fixture
def slow_engine() -> Iterator[EngineThread]:
    with EngineThread(EngineProfile().changed({"step_base_seconds": 0.05})) as running:
        yield running


def bodies(count: int) -> list[str]:
    return [f"Where is parcel {number}?" for number in range(count)]


def make_tickets_long(engine: EngineThread) -> None:
    """Some seconds each, in steps short enough that an abort is soon noticed."""
    engine.set_profile(step_base_seconds=0.15)
    engine.change_settings(answer_tokens=24)


async def holds_nothing(shift: Shift) -> bool:
    seen = await shift.ledger.snapshot()
    return seen.batch == Amount()


def test_every_ticket_is_called_once_and_gets_the_engine_s_answer(
    database: Database, valkey: ValkeyServer, engine: EngineThread
) -> None:
    texts = bodies(300)

    async def scene() -> None:
        async with at_work(database, valkey, engine.base_url, texts) as shift:
            await shift.finish()
            rows = shift.rows()
            assert shift.batch().state is BatchState.COMPLETED
            assert {row.state for row in rows.values()} == {JobState.SUCCEEDED}
            await wait_until_async(lambda: holds_nothing(shift), "all permits to come back")
            labels = {row.label for row in rows.values()}
            assert labels == set(LABELS)
            by_hash = {row.ticket: row.label for row in engine.log()}
            assert len(engine.log()) == len(by_hash) == 300

    play(scene)


def test_a_batch_whose_limit_is_the_floor_goes_on_one_at_a_time(
    database: Database, valkey: ValkeyServer, engine: EngineThread
) -> None:
    async def scene() -> None:
        async with at_work(database, valkey, engine.base_url, bodies(30)) as shift:
            await shift.ledger.publish(PublishedLimit(POOL.floor, 2_000), ttl_seconds=60, leader_epoch=2)
            await shift.finish()
            spans = sorted((row.arrived_at, row.ended_at or 0.0) for row in engine.log())
            overlaps = [later for (_, end), (later, _) in pairwise(spans) if later < end]
            assert overlaps == []

    play(scene)


def test_jobs_in_flight_when_a_task_s_time_is_up_fly_on(
    database: Database, valkey: ValkeyServer, slow_engine: EngineThread
) -> None:
    async def scene() -> None:
        async with at_work(database, valkey, slow_engine.base_url, bodies(60)) as shift:
            await shift.drive(seconds=0.4)
            assert shift.executor.in_flight > 0
            await wait_until_async(lambda: shift.executor.in_flight == 0, "the flights to land")
            await wait_until_async(lambda: shift.batch().running == 0, "the results to be written")
            batch = shift.batch()
            assert batch.succeeded > 0
            assert batch.pending == 60 - batch.succeeded
            assert {row.yields for row in shift.rows().values()} == {0}

    play(scene)


def test_a_stop_yields_what_does_not_end_within_the_grace(
    database: Database, valkey: ValkeyServer, slow_engine: EngineThread
) -> None:
    make_tickets_long(slow_engine)

    async def scene() -> None:
        async with at_work(database, valkey, slow_engine.base_url, bodies(40)) as shift:
            driving = asyncio.create_task(shift.drive())
            await wait_until_async(lambda: shift.executor.in_flight >= 5, "requests in flight")
            flying = shift.executor.in_flight
            assert await shift.executor.stop(grace_seconds=0.1)
            await driving
            batch = shift.batch()
            assert (batch.running, batch.pending, batch.yields) == (0, 40, flying)
            assert {row.attempts for row in shift.rows().values()} == {0}
            await wait_until_async(lambda: slow_engine.state()["running"] == 0, "the engine to notice")

    play(scene)


def test_revoked_permits_stop_their_requests_and_cost_no_attempt(
    database: Database, valkey: ValkeyServer, slow_engine: EngineThread
) -> None:
    make_tickets_long(slow_engine)

    async def scene() -> None:
        async with at_work(database, valkey, slow_engine.base_url, bodies(30)) as shift:
            driving = asyncio.create_task(shift.drive())
            await wait_until_async(lambda: slow_engine.state()["running"] >= 10, "ten requests at the engine")
            await shift.ledger.publish(PublishedLimit(POOL.floor, 2_000), ttl_seconds=60, leader_epoch=2)
            await wait_until_async(lambda: shift.is_pulled_back(9), "the yields to be written")
            await wait_until_async(lambda: slow_engine.state()["running"] <= 1, "the engine to be left alone", 3)
            assert {row.attempts for row in shift.rows().values()} <= {0, 1}
            slow_engine.set_profile(step_base_seconds=0.0)
            await driving
            await shift.finish()
            assert is_done(shift)

    play(scene)


def test_a_cancelled_batch_withdraws_what_is_in_flight(
    database: Database, valkey: ValkeyServer, slow_engine: EngineThread
) -> None:
    make_tickets_long(slow_engine)

    async def scene() -> None:
        async with at_work(database, valkey, slow_engine.base_url, bodies(40)) as shift:
            driving = asyncio.create_task(shift.drive())
            await wait_until_async(lambda: shift.executor.in_flight >= 5, "requests in flight")
            await asyncio.to_thread(moves.cancel, shift.db, shift.batch_id)
            await driving
            await wait_until_async(lambda: shift.batch().state is BatchState.CANCELLED, "the batch to close")
            assert {row.state for row in shift.rows().values()} == {JobState.CANCELLED}
            await wait_until_async(lambda: slow_engine.state()["running"] == 0, "the engine to notice")

    play(scene)


def test_a_paused_batch_starts_nothing_more_and_goes_on_when_resumed(
    database: Database, valkey: ValkeyServer, slow_engine: EngineThread
) -> None:
    async def scene() -> None:
        async with at_work(database, valkey, slow_engine.base_url, bodies(100)) as shift:
            driving = asyncio.create_task(shift.drive())
            await wait_until_async(lambda: shift.executor.in_flight >= 5, "requests in flight")
            await asyncio.to_thread(moves.pause, shift.db, shift.batch_id)
            await driving
            await wait_until_async(lambda: shift.batch().running == 0, "nothing to run any more")
            assert shift.batch().pending > 0
            await asyncio.to_thread(moves.resume, shift.db, shift.batch_id)
            slow_engine.set_profile(step_base_seconds=0.0)
            await shift.finish()
            assert is_done(shift)

    play(scene)


def test_a_worker_whose_jobs_were_reaped_writes_nothing(
    database: Database, valkey: ValkeyServer, slow_engine: EngineThread
) -> None:
    make_tickets_long(slow_engine)

    async def scene() -> None:
        async with at_work(database, valkey, slow_engine.base_url, bodies(5), lease_seconds=1.0) as shift:
            renewals = shift.executor._tasks[0]
            renewals.cancel()  # a worker too busy to renew
            driving = asyncio.create_task(shift.drive())
            await wait_until_async(lambda: shift.executor.in_flight == 5, "all in flight")

            async def reaped() -> bool:
                return await asyncio.to_thread(claims.reap, shift.db) == 5

            await wait_until_async(reaped, "the reaper to take them")
            other = await asyncio.to_thread(claims.claim, shift.db, shift.batch_id, 5, "other", 60.0)
            assert len(other) == 5
            await wait_until_async(lambda: shift.executor.in_flight == 0, "the late answers", 20)
            await driving
            batch = shift.batch()
            assert (batch.running, batch.succeeded) == (5, 0)

    play(scene)


def test_a_ticket_that_no_pool_can_carry_fails_and_the_others_go_on(
    database: Database, valkey: ValkeyServer, engine: EngineThread
) -> None:
    async def scene() -> None:
        texts = ["x" * 400_000, *bodies(5)]
        async with at_work(database, valkey, engine.base_url, texts) as shift:
            await shift.finish()
            rows = shift.rows()
            assert rows["t-0"].state is JobState.FAILED
            assert str(rows["t-0"].error).startswith("too_large")
            assert shift.batch().succeeded == 5

    play(scene)


@pytest.mark.parametrize("others", [0, 20])
def test_a_ticket_that_may_fit_is_not_failed_for_the_caution_of_the_first_guess(
    database: Database, valkey: ValkeyServer, engine: EngineThread, others: int
) -> None:
    engine.set_profile(context_tokens=100_000)

    async def scene() -> None:
        texts = ["x" * 170_000, *bodies(others)]  # of 48,000 tokens that batch may hold, 42,500 at 4 bytes each
        async with at_work(database, valkey, engine.base_url, texts) as shift:
            await shift.finish()
            assert {(row.state, row.truncated) for row in shift.rows().values()} == {(JobState.SUCCEEDED, False)}

    play(scene)


def test_when_enough_was_learned_tickets_that_then_never_fit_fail_and_the_batch_ends(
    sqlite_url: str, valkey: ValkeyServer, engine: EngineThread
) -> None:
    engine.change_settings(bytes_per_token=3.4)
    engine.set_profile(context_tokens=100_000)
    database = Database.open(sqlite_url)

    async def scene() -> None:
        async with at_work(database, valkey, engine.base_url, ["x" * 170_000] * (ENOUGH + 4)) as shift:
            await shift.finish()
            rows = shift.rows().values()
            assert [row.state for row in rows].count(JobState.SUCCEEDED) == ENOUGH
            failed = {row.error for row in rows if row.state is JobState.FAILED}
            assert len(failed) == 1
            assert re.fullmatch(
                r"too_large: of pool gpu it needs 50,\d\d\d tokens, batch may hold 48,000", str(failed.pop())
            )

    play(scene)
    database.dispose()


def test_answers_that_come_in_one_piece_leave_batch_what_is_shared(
    sqlite_url: str, valkey: ValkeyServer, slow_engine: EngineThread
) -> None:
    slow_engine.set_profile(step_base_seconds=0.02)
    database = Database.open(sqlite_url)

    async def scene() -> None:
        async with (
            Buffering([slow_engine.port]) as proxy,
            at_work(database, valkey, proxy.base_url, bodies(400)) as shift,
        ):
            # As the scheduler does while it knows no prefill rate.
            await shift.ledger.publish(PublishedLimit(POOL.most_batch, 0), ttl_seconds=60, leader_epoch=2)
            driving = asyncio.create_task(shift.drive())
            await wait_until_async(lambda: slow_engine.state()["running"] == POOL.most_batch.slots, "all slots", 20)
            assert (await shift.ledger.snapshot()).first_tokens == 0
            # The time of a whole answer is not that of a prompt.
            assert shift.endpoint.durations.prefilled(10_000, 0.1) == DurationEstimator().prefilled(10_000, 0.1)
            assert not shift.endpoint.ask(400, 24).streamed
            proxy.is_buffering = False
            await wait_until_async(lambda: shift.endpoint.ask(400, 24).streamed, "one that comes in pieces", 20)
            await shift.executor.stop(grace_seconds=0)
            await driving

    play(scene)
    database.dispose()


def test_a_ticket_larger_than_the_limit_runs_when_nothing_else_does(
    database: Database, valkey: ValkeyServer, engine: EngineThread
) -> None:
    async def scene() -> None:
        texts = ["x" * 40_000, *bodies(20)]
        async with at_work(database, valkey, engine.base_url, texts) as shift:
            await shift.ledger.publish(PublishedLimit(POOL.floor, 2_000), ttl_seconds=60, leader_epoch=2)
            await shift.finish()
            assert shift.batch().succeeded == 21

    play(scene)


def test_a_frozen_redis_stops_batch_and_its_return_lets_it_finish(
    database: Database, valkey: ValkeyServer, slow_engine: EngineThread
) -> None:
    async def scene() -> None:
        async with at_work(database, valkey, slow_engine.base_url, bodies(100)) as shift:
            driving = asyncio.create_task(shift.drive())
            await wait_until_async(lambda: shift.batch().succeeded > 0, "first results")
            valkey.kill()
            await wait_until_async(lambda: shift.executor.in_flight == 0, "nothing in flight without a ledger", 20)
            left = shift.batch().pending + shift.batch().running
            assert left > 0
            valkey.start()
            await shift.ledger.found()
            await shift.ledger.publish(PublishedLimit(POOL.most_batch, 60_000), ttl_seconds=60, leader_epoch=1)
            slow_engine.set_profile(step_base_seconds=0.0)
            await driving
            await shift.finish()
            assert is_done(shift)

    play(scene)


def test_the_estimate_learns_from_what_the_engine_counts(
    database: Database, valkey: ValkeyServer, engine: EngineThread
) -> None:
    engine.change_settings(bytes_per_token=2.0)

    async def scene() -> None:
        async with at_work(database, valkey, engine.base_url, bodies(60)) as shift:
            await shift.finish()
            assert shift.endpoint.estimator.report().ratio > 1.5

    play(scene)


def test_how_long_a_ticket_takes_is_learned_from_those_that_ended_and_said_at_every_ask(
    database: Database, valkey: ValkeyServer, slow_engine: EngineThread
) -> None:
    async def scene() -> None:
        async with at_work(database, valkey, slow_engine.base_url, bodies(60)) as shift:
            first = shift.endpoint.ask(400, 24)
            await shift.finish()
            rows = [row for row in slow_engine.log() if row.outcome == "ok"]
            seconds = sorted((row.ended_at or 0.0) - row.arrived_at for row in rows[-48:])
            learned = shift.endpoint.ask(400, 24)
            assert 0.8 * seconds[24] < learned.expected_ms / 1000 < 3 * seconds[-1]
            assert learned.expected_ms != first.expected_ms
            make_tickets_long(slow_engine)
            shift.batch_id = submit(database, bodies(90)[60:], source_key="more")
            driving = asyncio.create_task(shift.drive())
            await wait_until_async(lambda: slow_engine.state()["running"] >= 10, "requests at the engine")
            await wait_until_async(lambda: shift.is_pulled_back(9), "the yields to be written")
            assert shift.endpoint.ask(400, 24).expected_ms == learned.expected_ms
            await shift.executor.stop(grace_seconds=0.0)
            await driving

    play(scene)


def test_two_workers_share_one_batch_without_calling_any_ticket_twice(
    database: Database, valkey: ValkeyServer, engine: EngineThread
) -> None:
    async def scene() -> None:
        async with (
            at_work(database, valkey, engine.base_url, bodies(200)) as first,
            at_work(database, valkey, engine.base_url, [], allow_empty=True, source_key="other") as second,
        ):
            second.batch_id = first.batch_id
            await asyncio.gather(first.finish(), second.finish())
            assert len(engine.log()) == 200
            assert first.batch().succeeded == 200

    play(scene)


@pytest.mark.parametrize("is_slow", [True, False])
def test_more_tickets_are_claimed_at_a_time_only_where_the_engine_would_wait_for_them(
    database: Database,
    valkey: ValkeyServer,
    engine: EngineThread,
    monkeypatch: pytest.MonkeyPatch,
    is_slow: bool,
) -> None:
    asked: list[int] = []

    async def scene() -> None:
        async with at_work(database, valkey, engine.base_url, bodies(400)) as shift:
            executor = shift.executor

            def claim(db: Database, batch_id: str, limit: int, *of: object) -> object:
                asked.append(limit)
                taken = claims_claim(db, batch_id, limit, *of)
                if is_slow:
                    wait_until(lambda: not executor.held().waiting, "the tickets claimed before to be started")
                return taken

            monkeypatch.setattr("workers.leases.claims.claim", claim)
            if is_slow:
                await shift.drive(seconds=60.0)  # to its end: a drive whose time is up waits for the claim
                return
            make_tickets_long(engine)
            await shift.drive(seconds=0.1)
            engine.set_profile(step_base_seconds=0.002)
            task = asyncio.create_task(shift.drive(at_once=2))  # whose first claim too is waited for
            await wait_until_async(lambda: len(asked) >= 5, "the claims after it")
            await executor.stop(grace_seconds=1)
            await task

    claims_claim: Callable[..., object] = claims.claim
    play(scene)
    assert asked[0] == 16  # what the first call waits for is soon here
    assert max(asked) <= 64
    assert (max(asked) > 32) is is_slow
