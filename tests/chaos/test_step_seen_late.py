"""A step of the machine's clock that one process has read and another has not yet."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest

from jobs.job import Job
from jobs.outcomes import Requeued
from jobs.states import BatchState, JobState
from jobs.store import batches, claims, leader, moves, services
from jobs.store.clock import REREAD_SECONDS, SETTLING_SECONDS
from jobs.store.database import Database
from scheduler.reaping import BACK_SECONDS, Reaping
from tests.support.stepping import World
from tests.support.store import LEASE_SECONDS, claim, finish, job_rows, submit, succeed

HOUR_SECONDS = 3_600.0
LEADER_SECONDS = 5.0


@contextmanager
def process(url: str, world: World) -> Iterator[Database]:
    """A process of its own, as far as clocks go."""
    db = Database.open(url, world.clock())
    try:
        yield db
    finally:
        db.dispose()


def renew(worker: Database, held: list[Job]) -> set[int]:
    return claims.renew(worker, {job.lease_token for job in held}, LEASE_SECONDS)


@pytest.mark.parametrize("step_seconds", [-HOUR_SECONDS, HOUR_SECONDS])
def test_who_has_not_yet_read_a_stepped_clock_takes_nothing_from_who_has(
    database_url: str, step_seconds: float
) -> None:
    world = World()
    with process(database_url, world) as worker, process(database_url, world) as reaper:
        batch = submit(worker, 2).batch_id
        world.pass_seconds(REREAD_SECONDS / 2)
        assert claims.reap(reaper) == 0  # it reads the clock later than the worker, and so it will again
        held = claim(worker, batch)

        world.step(step_seconds)
        world.pass_seconds(REREAD_SECONDS / 2 + 1)
        assert renew(worker, held) == {job.id for job in held}
        assert claims.reap(reaper) == 0
        assert succeed(worker, held) == {job.id for job in held}
        assert [row.state for row in job_rows(worker, batch)] == [JobState.SUCCEEDED] * 2


def test_who_is_really_gone_is_reaped_when_the_clock_has_settled(database_url: str) -> None:
    world = World()
    with process(database_url, world) as worker, process(database_url, world) as reaper:
        batch = submit(worker, 1).batch_id
        assert claims.reap(reaper) == 0
        claim(worker, batch)
        world.step(HOUR_SECONDS)
        world.pass_seconds(LEASE_SECONDS)
        assert claims.reap(reaper) == 0
        world.pass_seconds(SETTLING_SECONDS + REREAD_SECONDS)
        assert claims.reap(reaper) == 1


def watch(reaping: Reaping, world: World, seconds: float) -> None:
    """The scheduler sees the database twice a second."""
    for _ in range(math.ceil(2 * seconds)):
        world.pass_seconds(0.5)
        reaping.saw_database()


def beat(worker: Database) -> None:
    services.beat(worker, "worker", "one", "here", 1, {})


def test_a_scheduler_begun_after_a_step_takes_nothing_from_a_worker_that_has_not_read_the_clock(
    database_url: str,
) -> None:
    """From the seed 130: its leases and its heartbeats go on by the time before."""
    world = World()
    with process(database_url, world) as worker:
        batch = submit(worker, 1).batch_id
        held = claim(worker, batch)
        beat(worker)
        world.step(HOUR_SECONDS)
        with process(database_url, world) as fresh:
            reaping = Reaping(fresh, LEASE_SECONDS, world.monotonic)
            for _ in range(round(REREAD_SECONDS + LEASE_SECONDS)):
                assert reaping.look() == 0
                watch(reaping, world, 1)
                assert renew(worker, held) == {held[0].id}
                beat(worker)
        assert succeed(worker, held) == {held[0].id}


def test_a_worker_that_was_killed_before_the_scheduler_began_is_reaped(database_url: str) -> None:
    world = World()
    with process(database_url, world) as worker:
        claim(worker, submit(worker, 1).batch_id)
        beat(worker)
        world.pass_seconds(HOUR_SECONDS)
        with process(database_url, world) as fresh:
            reaping = Reaping(fresh, LEASE_SECONDS, world.monotonic)
            assert reaping.look() == 0
            watch(reaping, world, REREAD_SECONDS + LEASE_SECONDS / 3)
            assert reaping.look() == 1


def test_a_lease_that_runs_out_among_workers_that_are_heard_is_reaped_at_once(database_url: str) -> None:
    world = World()
    with process(database_url, world) as worker, process(database_url, world) as fresh:
        reaping = Reaping(fresh, LEASE_SECONDS, world.monotonic)
        watch(reaping, world, LEASE_SECONDS / 3 + BACK_SECONDS)
        claims.claim(worker, submit(worker, 1).batch_id, 1, "one", 1.0)
        beat(worker)
        watch(reaping, world, 2)
        assert reaping.look() == 1


def lead(db: Database, name: str) -> int | None:
    return leader.acquire_or_renew(db, "scheduler", name, LEADER_SECONDS)


@pytest.mark.parametrize("step_seconds", [-HOUR_SECONDS, HOUR_SECONDS])
def test_a_standby_that_has_not_yet_read_a_stepped_clock_takes_no_lead(database_url: str, step_seconds: float) -> None:
    world = World()
    with process(database_url, world) as leads, process(database_url, world) as stands_by:
        epoch = lead(leads, "first")
        world.pass_seconds(LEADER_SECONDS - 1)
        assert lead(leads, "first") == epoch
        world.pass_seconds(LEADER_SECONDS - 1)
        assert lead(stands_by, "second") is None  # it reads the clock later than the leader, and so it will again
        assert lead(leads, "first") == epoch

        world.step(step_seconds)
        world.pass_seconds(REREAD_SECONDS - 2 * (LEADER_SECONDS - 1) + 0.5)
        epoch = lead(leads, "first")  # a step forward is a lease that ran out: its own
        assert epoch is not None
        assert lead(stands_by, "second") is None
        assert lead(leads, "first") == epoch


def test_a_leader_that_is_really_gone_is_followed_when_the_clock_has_settled(database_url: str) -> None:
    world = World()
    with process(database_url, world) as leads, process(database_url, world) as stands_by:
        epoch = lead(leads, "first")
        assert epoch is not None
        assert lead(stands_by, "second") is None
        world.step(HOUR_SECONDS)
        world.pass_seconds(LEADER_SECONDS)
        assert lead(stands_by, "second") is None
        world.pass_seconds(SETTLING_SECONDS + REREAD_SECONDS)
        later = lead(stands_by, "second")
        assert later is not None
        assert later > epoch


def test_a_leader_from_before_the_clock_was_set_back_is_followed(database_url: str) -> None:
    """As when a machine whose clock was ahead goes down and comes up with the right time."""
    world = World()
    with process(database_url, world) as leads:
        epoch = lead(leads, "first")
        assert epoch is not None
    world.step(-HOUR_SECONDS)
    with process(database_url, world) as fresh:
        for _ in range(round(SETTLING_SECONDS)):
            assert lead(fresh, "second") is None  # as far as it knows, the other one has not yet read the clock
            world.pass_seconds(1)
        later = lead(fresh, "second")
        assert later is not None
        assert later > epoch


def test_a_leader_that_reads_the_clock_late_is_not_followed(database_url: str) -> None:
    """The step was before the standby began, which does not know of it."""
    world = World()
    with process(database_url, world) as leads:
        epoch = lead(leads, "first")
        world.step(-HOUR_SECONDS)
        with process(database_url, world) as fresh:
            for _ in range(round(2 * SETTLING_SECONDS)):
                assert lead(fresh, "second") is None
                world.pass_seconds(1)
                assert lead(leads, "first") == epoch


def test_jobs_of_a_worker_from_before_the_clock_was_set_back_are_reaped(database_url: str) -> None:
    world = World()
    with process(database_url, world) as worker:
        batch = submit(worker, 1).batch_id
        claim(worker, batch)
    world.step(-HOUR_SECONDS)
    with process(database_url, world) as fresh:
        for _ in range(round(SETTLING_SECONDS)):
            assert claims.reap(fresh) == 0
            world.pass_seconds(1)
        assert claims.reap(fresh) == 1


def test_jobs_claimed_before_the_clock_was_set_back_stay_with_a_worker_that_renews(database_url: str) -> None:
    world = World()
    with process(database_url, world) as worker:
        batch = submit(worker, 1).batch_id
        held = claim(worker, batch)
        world.step(-HOUR_SECONDS)
        with process(database_url, world) as fresh:
            for _ in range(round(2 * SETTLING_SECONDS)):
                assert claims.reap(fresh) == 0
                world.pass_seconds(1)
                assert renew(worker, held)


def test_a_rest_from_before_the_clock_was_set_back_is_over(database_url: str) -> None:
    world = World()
    with process(database_url, world) as worker:
        batch = submit(worker, 1).batch_id
        finish(worker, claim(worker, batch), Requeued(delay_seconds=2.0))
        assert not claim(worker, batch)
        world.step(-HOUR_SECONDS)
        world.pass_seconds(REREAD_SECONDS)
        assert [work.id for work in batches.runnable(worker)] == [batch]
        assert claim(worker, batch)


def test_what_a_clock_that_was_ahead_has_expired_can_be_retried(database_url: str) -> None:
    world = World()
    with process(database_url, world) as db:
        deadline_at = db.now() + timedelta(hours=0.5)
        batch = submit(db, 3, deadline_at=deadline_at).batch_id
        world.step(HOUR_SECONDS)
        world.pass_seconds(REREAD_SECONDS)
        db.now()
        world.pass_seconds(SETTLING_SECONDS)
        assert moves.expire_overdue(db) == 3
        world.step(-HOUR_SECONDS)
        world.pass_seconds(REREAD_SECONDS)
        assert moves.retry(db, batch, deadline_at) == 3
        assert batches.get(db, batch).state is BatchState.RUNNING


def test_epochs_rise_across_databases(sqlite_url: str, postgresql_url: str) -> None:
    """The ledger refuses what comes under an older epoch, and outlives the database."""
    world = World()
    with process(sqlite_url, world) as first, process(postgresql_url, world) as second:
        before: list[int] = []
        for number in range(5):
            epoch = lead(first, f"{number}")
            assert epoch is not None
            before.append(epoch)
            world.pass_seconds(LEADER_SECONDS + 1)
        after = lead(second, "another")
        assert after is not None
        assert before == sorted(set(before))
        assert after > before[-1]
