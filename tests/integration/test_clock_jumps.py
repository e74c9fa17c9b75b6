"""A clock that jumps, or a machine that sleeps: nothing expires before its time."""

import asyncio
from collections.abc import Iterator
from datetime import timedelta

import pytest

from jobs.outcomes import Requeued, Symptom
from jobs.states import BatchState, JobState
from jobs.store import moves
from jobs.store.clock import REREAD_SECONDS, SETTLING_SECONDS
from jobs.store.database import Database
from tests.support.stepping import World
from tests.support.store import START, attempt, claim, finish, job_rows, state, submit
from workers.watch import Watch

HOUR = 3600.0
DEADLINE = START + timedelta(minutes=40)


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def db(database_url: str, world: World) -> Iterator[Database]:
    opened = Database.open(database_url, world.clock())
    yield opened
    opened.dispose()


def states(db: Database, batch: str) -> list[str]:
    return [row.state for row in job_rows(db, batch)]


def jump(db: Database, world: World, seconds: float) -> None:
    """The wall clock jumps, and this process reads it."""
    db.now()
    world.step(seconds)
    world.pass_seconds(REREAD_SECONDS)


def test_a_jump_past_the_deadline_expires_nothing_until_it_has_stood_for_a_while(db: Database, world: World) -> None:
    batch = submit(db, 2, deadline_at=DEADLINE).batch_id
    jump(db, world, HOUR)

    assert moves.expire_overdue(db) == 0
    assert states(db, batch) == [JobState.PENDING] * 2

    world.pass_seconds(SETTLING_SECONDS)  # by now it is the time
    assert moves.expire_overdue(db) == 2
    assert state(db, batch) is BatchState.EXPIRED


def test_a_jump_that_is_taken_back_expires_nothing_at_all(db: Database, world: World) -> None:
    batch = submit(db, 1, deadline_at=DEADLINE).batch_id
    for step in (HOUR, -HOUR, 0, 0, 0, 0):
        jump(db, world, step)
        assert moves.expire_overdue(db) == 0

    assert [job.custom_id for job in claim(db, batch)] == ["t-0"]


def test_a_job_put_back_after_a_jump_is_pending_again(db: Database, world: World) -> None:
    batch = submit(db, 1, deadline_at=DEADLINE).batch_id
    held = claim(db, batch)
    jump(db, world, HOUR)

    assert finish(db, held, Requeued(is_yield=True), attempt(Symptom.WITHDRAWN)) == {held[0].id}

    assert states(db, batch) == [JobState.PENDING]
    assert state(db, batch) is BatchState.RUNNING


def test_what_is_late_by_both_clocks_expires_though_they_differ(db: Database, world: World) -> None:
    batch = submit(db, 2, deadline_at=START + timedelta(seconds=5)).batch_id
    held = claim(db, batch, 1)
    jump(db, world, 2.0)  # 12 s have passed, or 10

    assert moves.expire_overdue(db) == 1
    finish(db, held, Requeued(is_yield=True))
    assert states(db, batch) == [JobState.EXPIRED] * 2


def test_a_jump_back_makes_the_deadline_later(db: Database, world: World) -> None:
    batch = submit(db, 1, deadline_at=DEADLINE).batch_id
    jump(db, world, -HOUR)
    world.pass_seconds(HOUR)

    assert moves.expire_overdue(db) == 0
    world.pass_seconds(40 * 60)
    assert moves.expire_overdue(db) == 1
    assert state(db, batch) is BatchState.EXPIRED


@pytest.mark.parametrize("step", [HOUR, -HOUR])
def test_a_worker_holds_the_deadline_by_the_time_that_passes_for_it(db: Database, world: World, step: float) -> None:
    batch = submit(db, 1, deadline_at=DEADLINE).batch_id
    watch = Watch(db, world.monotonic)
    asyncio.run(watch.look(batch))
    assert watch.seconds_left(batch) == 40 * 60

    world.step(step)
    assert watch.seconds_left(batch) == 40 * 60  # not even read again
    world.pass_seconds(REREAD_SECONDS)
    asyncio.run(watch.look(batch))

    left = 40 * 60 - REREAD_SECONDS
    assert watch.seconds_left(batch) == (left if step > 0 else left + HOUR)
    assert watch.goes_on(batch)
    world.pass_seconds(SETTLING_SECONDS)
    asyncio.run(watch.look(batch))
    assert watch.goes_on(batch) == (step < 0)


def test_a_worker_enforces_the_deadline_while_the_store_is_away(world: World, sqlite_url: str) -> None:
    db = Database.open(sqlite_url, world.clock())
    batch = submit(db, 1, deadline_at=DEADLINE).batch_id
    watch = Watch(db, world.monotonic)
    asyncio.run(watch.look(batch))

    world.pass_seconds(40 * 60 - 1)
    assert not watch.is_past_deadline(batch)
    assert watch.goes_on(batch)
    world.pass_seconds(1)
    assert watch.is_past_deadline(batch)
    assert not watch.goes_on(batch)
    assert not watch.is_past_deadline(batch, grace_seconds=2)
    world.pass_seconds(2)
    assert watch.is_past_deadline(batch, grace_seconds=2)
    db.dispose()
