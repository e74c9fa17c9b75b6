"""The deadline as one worker holds it, from the side of what comes too late."""

import asyncio
import threading
from collections.abc import Iterator
from datetime import datetime, timedelta

import pytest
from sqlalchemy import select, update

from jobs.outcomes import Symptom
from jobs.states import BatchState, JobState
from jobs.store import batches, moves
from jobs.store.batches import BatchWork
from jobs.store.database import Database
from jobs.tables import attempts
from jobs.tables import batches as batches_table
from scheduler.capacity import Amount
from scheduler.permit import Ask, Permit, Refusal
from scheduler.simulation.engine.profile import EngineProfile
from tests.engine.process import EngineThread
from tests.support.shift import Shift, at_work, play
from tests.support.store import job_rows
from tests.support.valkey import ValkeyServer
from tests.support.wait import wait_until_async

pytestmark = pytest.mark.long


@pytest.fixture
def engine() -> Iterator[EngineThread]:
    """A ticket takes about a second and a half."""
    with EngineThread(EngineProfile(step_base_seconds=0.05)) as running:
        running.change_settings(answer_tokens=24)
        yield running


def end_in(db: Database, batch_id: str, seconds: float) -> datetime:
    """Move the deadline to so many seconds from now."""
    deadline = db.now() + timedelta(seconds=seconds)
    with db.begin() as connection:
        connection.execute(update(batches_table).where(batches_table.c.id == batch_id).values(deadline_at=deadline))
    return deadline


def bodies(count: int) -> list[str]:
    return [f"Where is parcel {number}?" for number in range(count)]


async def has_ended(shift: Shift) -> bool:
    moves.expire_overdue(shift.db)
    return shift.batch().state.is_final


def outcomes(engine: EngineThread) -> set[str]:
    return {row.outcome for row in engine.log()}


def test_a_permit_that_comes_after_the_deadline_starts_nothing(
    database: Database, valkey: ValkeyServer, engine: EngineThread
) -> None:
    async def scene() -> None:
        async with at_work(database, valkey, engine.base_url, bodies(3)) as shift:
            gate = shift.endpoint.gate
            real = gate.ask

            async def slowly(ask: Ask) -> Permit | Refusal:
                answer = await real(ask)
                await asyncio.sleep(0.7)
                return answer

            gate.ask = slowly  # type: ignore[method-assign]
            end_in(database, shift.batch_id, 0.5)
            await shift.drive(seconds=5)

            await wait_until_async(lambda: has_ended(shift), "the batch to end")
            assert {row.state for row in job_rows(database, shift.batch_id)} == {JobState.EXPIRED}
            assert engine.log() == []
            assert engine.busy() == 0
            assert (await shift.ledger.snapshot()).batch == Amount()

    play(scene)


@pytest.mark.parametrize(("grace_seconds", "what"), [(10.0, "ok"), (0.2, "aborted"), (0.0, "aborted")])
def test_what_is_at_the_model_has_the_grace_and_no_more(
    database: Database, valkey: ValkeyServer, engine: EngineThread, grace_seconds: float, what: str
) -> None:
    async def scene() -> None:
        async with at_work(database, valkey, engine.base_url, bodies(30), grace_seconds=grace_seconds) as shift:
            driving = asyncio.create_task(shift.drive(seconds=30))
            await wait_until_async(lambda: engine.busy() == 16, "all that batch may have")
            end_in(database, shift.batch_id, 0)
            await driving
            await wait_until_async(lambda: has_ended(shift), "the batch to end")

            assert outcomes(engine) == {what}
            assert len(engine.log()) == 16
            shown = shift.batch()
            assert shown.state is BatchState.EXPIRED
            done = 16 if what == "ok" else 0
            assert (shown.succeeded, shown.expired) == (done, 30 - done)
            assert {row.error for row in shift.rows().values() if row.state == "expired"} == {"deadline"}

    play(scene)


def test_the_deadline_holds_while_the_store_does_not_answer(
    database: Database, valkey: ValkeyServer, engine: EngineThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.freeze()
    answers = threading.Event()
    real = batches.work

    def stuck(db: Database, batch_id: str) -> BatchWork:
        assert answers.wait(50)
        return real(db, batch_id)

    async def scene() -> None:
        async with at_work(database, valkey, engine.base_url, bodies(4), grace_seconds=0.2) as shift:
            end_in(database, shift.batch_id, 4)
            driving = asyncio.create_task(shift.drive(seconds=30))
            await wait_until_async(lambda: shift.executor.in_flight == 4, "four in flight")
            monkeypatch.setattr(batches, "work", stuck)
            try:
                await wait_until_async(lambda: shift.executor.in_flight == 0, "them to be withdrawn", 30)
            finally:
                answers.set()
                engine.thaw()
            await driving
            await wait_until_async(lambda: shift.batch().state is BatchState.EXPIRED, "the batch to end")
            with database.read() as connection:
                assert set(connection.execute(select(attempts.c.symptom)).scalars()) == {Symptom.DEADLINE}

    play(scene)


def test_a_later_deadline_is_heard_in_time(database: Database, valkey: ValkeyServer, engine: EngineThread) -> None:
    async def scene() -> None:
        async with at_work(database, valkey, engine.base_url, bodies(4), grace_seconds=0.0) as shift:
            engine.freeze()
            first = end_in(database, shift.batch_id, 3)
            driving = asyncio.create_task(shift.drive(seconds=30))
            await wait_until_async(lambda: engine.busy() == 4, "four in flight")
            end_in(database, shift.batch_id, 3600)
            past = first + timedelta(seconds=1)
            await wait_until_async(lambda: database.now() > past, "the first deadline to be over")
            assert engine.busy() == 4
            engine.thaw()
            await driving
            await wait_until_async(lambda: shift.batch().state is BatchState.COMPLETED, "the batch to end")

    play(scene)
