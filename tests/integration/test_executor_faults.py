"""Faults of the executor's own and of what it is given: nothing is held for ever, nothing else suffers."""

import asyncio
import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import delete, select, update

from jobs.job import Finish, Job
from jobs.outcomes import Succeeded, Usage
from jobs.store import claims, moves
from jobs.store.database import Database
from jobs.tables import batches as batches_table
from jobs.tables import jobs as jobs_table
from scheduler.capacity import Amount
from scheduler.simulation.engine.profile import EngineProfile
from tests.engine.process import EngineThread
from tests.support import store
from tests.support.aftermath import aftermath
from tests.support.canned import CannedServer, whole
from tests.support.shift import Shift, at_work, play, submit
from tests.support.valkey import ValkeyServer
from tests.support.wait import wait_until, wait_until_async
from workers.writer import Writer


@pytest.fixture
def engine() -> Iterator[EngineThread]:
    with EngineThread(EngineProfile.instant()) as running:
        yield running


def bodies(count: int) -> list[str]:
    return [f"Where is parcel {number}?" for number in range(count)]


def test_a_flight_that_crashes_holds_neither_its_permit_nor_its_job(
    database: Database, valkey: ValkeyServer, engine: EngineThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def crash(*_: Any, **__: Any) -> None:
        raise RuntimeError("a defect")

    async def scene() -> None:
        async with at_work(database, valkey, engine.base_url, bodies(5), lease_seconds=1.0) as shift:
            with monkeypatch.context() as broken:
                broken.setattr(shift.endpoint.client, "classify", crash)
                driving = asyncio.create_task(shift.drive())
                await wait_until_async(lambda: shift.batch().running == 5, "the jobs to be taken")
                await wait_until_async(lambda: holds_nothing(shift), "the permits to come back")
                await driving
            await wait_until_async(lambda: claims.reap(database), "the leases to run out")
            await shift.finish()
            assert aftermath(database, shift.batch_id).states == {"succeeded": 5}

    async def holds_nothing(shift: Shift) -> bool:
        return (await shift.ledger.snapshot()).batch == Amount()

    play(scene)


def test_a_job_that_was_lost_and_comes_back_before_it_is_noticed_flies_once_more_and_is_held(
    database: Database, valkey: ValkeyServer, caplog: pytest.LogCaptureFixture
) -> None:
    """As after a process that stood still for longer than its leases."""

    def lease_expires_at() -> datetime | None:
        with database.read() as connection:
            found: datetime | None = connection.execute(select(jobs_table.c.lease_expires_at)).scalar_one()
        return found

    async def scene() -> None:
        with EngineThread(EngineProfile.instant().changed({"step_base_seconds": 0.5})) as engine:
            async with at_work(database, valkey, engine.base_url, bodies(1), lease_seconds=6.0) as shift:
                finishing = asyncio.create_task(shift.finish())
                await wait_until_async(lambda: shift.executor.in_flight == 1, "the job to fly")
                with database.begin() as connection:
                    connection.execute(update(jobs_table).values(lease_expires_at=datetime(2020, 1, 1, tzinfo=UTC)))
                assert claims.reap(database) == 1
                await wait_until_async(lambda: [row.outcome for row in engine.log()][:1] == ["aborted"], "its end")
                first = await wait_until_async(lease_expires_at, "the second lease")
                await wait_until_async(lambda: lease_expires_at() != first, "its renewal")
                await finishing
                assert [row.outcome for row in engine.log()] == ["aborted", "ok"]
                assert aftermath(database, shift.batch_id).states == {"succeeded": 1}

    play(scene)
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


def test_a_result_that_cannot_be_written_is_let_go_and_the_others_are_written(database: Database) -> None:
    batch_id = store.submit(database, 5).batch_id
    held = store.claim(database, batch_id)
    unwritable = store.attempt(label="shipping", usage=Usage(2**70, 1))
    let_go: list[Job] = []
    writer = Writer(database, let_go.extend)
    for job in held:
        attempt = unwritable if job is held[2] else store.attempt(label="shipping")
        writer.put(Finish(job, Succeeded("shipping"), attempt))
    writer.start()
    wait_until(lambda: writer.backlog == 0, "everything to be tried")
    assert writer.close(1)
    assert sorted(job.id for job in let_go) == [job.id for job in held]
    states = [row.state for row in store.job_rows(database, batch_id)]
    assert states == ["succeeded", "succeeded", "running", "succeeded", "succeeded"]


def test_results_that_the_database_did_not_take_in_time_are_told_at_the_end(sqlite_url: str) -> None:
    database = Database.open(sqlite_url)
    batch_id = store.submit(database, 1).batch_id
    (job,) = store.claim(database, batch_id)
    away = Database.open("postgresql+psycopg://nobody@127.0.0.1:1/nowhere")
    writer = Writer(away, lambda jobs: None)
    writer.start()
    writer.put(Finish(job, Succeeded("shipping"), store.attempt(label="shipping")))
    assert not writer.close(0.2)
    assert writer.backlog == 1
    away.dispose()
    database.dispose()


def test_jobs_that_come_while_the_worker_stops_go_back_before_it_has_ended(
    sqlite_url: str, valkey: ValkeyServer, engine: EngineThread
) -> None:
    database = Database.open(sqlite_url)

    async def scene() -> None:
        async with at_work(database, valkey, engine.base_url, bodies(5)) as shift:
            with closing(sqlite3.connect(str(database.url.database), isolation_level=None)) as other:
                other.execute("BEGIN IMMEDIATE")
                driving = asyncio.create_task(shift.drive())
                await wait_until_async(lambda: shift.executor._driving is not None, "the claim to wait for the lock")
                stopping = asyncio.create_task(shift.executor.stop(grace_seconds=5))
                await asyncio.sleep(0)  # it begins
            assert await stopping
            assert driving.done()
            assert aftermath(database, shift.batch_id).states == {"pending": 5}

    play(scene)
    database.dispose()


def test_a_batch_whose_pools_no_worker_knows_is_blocked_and_says_so(
    database: Database, valkey: ValkeyServer, engine: EngineThread
) -> None:
    async def scene() -> None:
        async with at_work(database, valkey, engine.base_url, bodies(5), pools=("h100", "a100")) as shift:
            await shift.drive()
            await wait_until_async(lambda: shift.batch().running == 0, "the jobs to go back")
            seen = aftermath(database, shift.batch_id)
            assert str(seen.batch.blocked).startswith("none of its pools (h100, a100) is in the settings")
            assert (seen.states, set(seen.spent)) == ({"pending": 5}, {0})

    play(scene)


@pytest.mark.long
def test_after_a_batch_was_purged_under_a_worker_s_hands_the_next_can_be_cancelled(
    database: Database, valkey: ValkeyServer, engine: EngineThread
) -> None:
    engine.set_profile(step_base_seconds=0.15)
    engine.change_settings(answer_tokens=24)

    async def scene() -> None:
        async with at_work(database, valkey, engine.base_url, bodies(40)) as shift:
            await in_flight(shift)
            with database.begin() as connection:
                connection.execute(delete(batches_table))
            await wait_until_async(lambda: shift.executor.in_flight == 0, "its requests to end", 20)
            shift.batch_id = submit(database, bodies(40))
            await in_flight(shift)
            await asyncio.to_thread(moves.cancel, database, shift.batch_id)
            await wait_until_async(lambda: shift.batch().state.is_final, "the batch to close", 4)
            assert aftermath(database, shift.batch_id).states == {"cancelled": 40}

    async def in_flight(shift: Shift) -> None:
        driving = asyncio.create_task(shift.drive(seconds=0.5))
        await wait_until_async(lambda: shift.executor.in_flight == 16, "all slots to be taken")
        await driving

    play(scene)


def test_an_engine_that_cuts_long_prompts_is_told_of_once(
    database: Database, valkey: ValkeyServer, caplog: pytest.LogCaptureFixture
) -> None:
    """As Ollama does beyond its `num_ctx`: it answers, and its usage is all that shows it."""
    chosen = {"index": 0, "delta": {"content": json.dumps({"label": "billing"})}, "finish_reason": "stop"}
    usage = {"prompt_tokens": 512, "completion_tokens": 8, "total_tokens": 520}
    events = [{"choices": [chosen]}, {"choices": [], "usage": usage}]
    stream = "".join(f"data: {json.dumps(event)}\n\n" for event in events) + "data: [DONE]\n\n"

    async def scene() -> None:
        async with CannedServer(whole(200, stream.encode(), "text/event-stream")) as server:
            texts = ["Where is it? " * 150 * (1 + number % 4) for number in range(20)]
            async with at_work(database, valkey, server.base_url, texts) as shift:
                await shift.finish()
                assert shift.batch().succeeded == 20

    play(scene)
    said = [record.getMessage() for record in caplog.records if "cut" in record.getMessage()]
    assert len(said) == 1
    assert said[0].startswith("pool gpu: the engine counts no prompt as more than 512 tokens")
