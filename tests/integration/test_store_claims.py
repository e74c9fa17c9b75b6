"""Leases: taking jobs, keeping them, and losing them."""

from datetime import timedelta

import pytest

from jobs.outcomes import Requeued
from jobs.states import BatchState, JobState
from jobs.store import batches, claims, events, moves
from jobs.store.database import Database
from tests.support.store import (
    LEASE_SECONDS,
    START,
    ManualClock,
    assert_consistent,
    claim,
    finish,
    job_rows,
    state,
    submit,
    succeed,
    ticket,
)


def test_a_claim_hands_out_the_text_under_a_lease(store: Database) -> None:
    batch = submit(store, [ticket(1, "Where is it?")]).batch_id

    (job,) = claim(store, batch)

    assert (job.custom_id, job.subject, job.body) == ("t-1", "Question 1", "Where is it?")
    assert (job.attempts, job.requeues, job.truncated) == (0, 0, False)
    assert job.lease_expires_at == START + timedelta(seconds=LEASE_SECONDS)
    counts = batches.get(store, batch)
    assert (counts.pending, counts.running, counts.started_at) == (0, 1, START)


def test_no_job_is_handed_out_twice_and_each_claim_has_its_own_token(store: Database) -> None:
    batch = submit(store, 10).batch_id

    first, second = claim(store, batch, 6), claim(store, batch, 6)

    assert [len(first), len(second)] == [6, 4]
    assert not {job.id for job in first} & {job.id for job in second}
    assert len({job.lease_token for job in first + second}) == 2
    assert claim(store, batch) == []


def test_higher_priority_goes_first_then_fewer_returns_then_age(store: Database) -> None:
    batch = submit(store, [ticket(1), ticket(2), ticket(3, priority=5), ticket(4)]).batch_id
    returned = claim(store, batch, 2)
    assert [job.custom_id for job in returned] == ["t-3", "t-1"]
    finish(store, returned, Requeued(is_yield=True))

    assert [job.custom_id for job in claim(store, batch)] == ["t-3", "t-2", "t-4", "t-1"]


def test_a_resting_job_is_left_until_its_time(store: Database, store_clock: ManualClock) -> None:
    batch = submit(store, 1).batch_id
    finish(store, claim(store, batch), Requeued(delay_seconds=10))

    store_clock.advance(9.9)
    assert claim(store, batch) == []
    store_clock.advance(0.1)
    assert len(claim(store, batch)) == 1


def test_nothing_is_given_before_the_batch_may_start(store: Database, store_clock: ManualClock) -> None:
    batch = submit(store, 1, not_before=START + timedelta(hours=1)).batch_id

    assert claim(store, batch) == []
    store_clock.advance(3600)
    assert len(claim(store, batch)) == 1


def test_nothing_is_given_at_the_deadline(store: Database, store_clock: ManualClock) -> None:
    batch = submit(store, 2, deadline_at=START + timedelta(hours=1)).batch_id

    store_clock.advance(3599.9)
    assert len(claim(store, batch, 1)) == 1
    store_clock.advance(0.1)
    assert claim(store, batch) == []


@pytest.mark.parametrize("move", [moves.pause, moves.cancel])
def test_nothing_is_given_of_a_batch_that_does_not_run(store: Database, move: object) -> None:
    batch = submit(store, 2).batch_id
    claim(store, batch, 1)
    move(store, batch)  # type: ignore[operator]

    assert claim(store, batch) == []


def test_nothing_is_given_of_a_batch_that_does_not_exist(store: Database) -> None:
    assert claim(store, "batch_20260101_000000") == []


def test_a_renewed_lease_is_never_reaped(store: Database, store_clock: ManualClock) -> None:
    batch = submit(store, 1).batch_id
    (job,) = claim(store, batch)

    for _ in range(20):
        store_clock.advance(LEASE_SECONDS - 1)
        assert claims.renew(store, {job.lease_token}, LEASE_SECONDS) == {job.id}
        assert claims.reap(store) == 0
    assert succeed(store, [job]) == {job.id}


def test_a_renewal_names_the_jobs_still_held(store: Database) -> None:
    batch = submit(store, 4).batch_id
    first, second = claim(store, batch, 2), claim(store, batch, 2)
    succeed(store, first[:1])

    held = claims.renew(store, {first[0].lease_token, second[0].lease_token, "a stranger's"}, LEASE_SECONDS)

    assert held == {first[1].id, second[0].id, second[1].id}
    assert claims.renew(store, [], LEASE_SECONDS) == set()


def test_a_lapsed_lease_goes_back_unspent_behind_fresh_work(store: Database, store_clock: ManualClock) -> None:
    batch = submit(store, 3).batch_id
    lost = claim(store, batch, 1)
    store_clock.advance(LEASE_SECONDS)

    assert claims.reap(store) == 1
    assert claims.reap(store) == 0

    again = claim(store, batch)
    assert [job.custom_id for job in again] == ["t-1", "t-2", "t-0"]
    assert (again[2].attempts, again[2].requeues) == (0, 1)
    assert again[2].lease_token != lost[0].lease_token
    kinds = [event.kind for event in events.recent(store, batch)]
    assert kinds == ["reaped", "submitted"]
    assert_consistent(store)


def test_a_renewal_after_the_reaper_revives_nothing(store: Database, store_clock: ManualClock) -> None:
    batch = submit(store, 1).batch_id
    (zombie,) = claim(store, batch)
    store_clock.advance(LEASE_SECONDS)
    claims.reap(store)

    assert claims.renew(store, {zombie.lease_token}, LEASE_SECONDS) == set()
    (job,) = claim(store, batch)
    assert claims.renew(store, {zombie.lease_token}, LEASE_SECONDS) == set()
    assert claims.renew(store, {job.lease_token}, LEASE_SECONDS) == {job.id}


def test_a_job_that_kills_its_workers_ends(store: Database, store_clock: ManualClock) -> None:
    batch = submit(store, 1).batch_id
    for _ in range(claims.REAPS):
        assert len(claim(store, batch)) == 1
        store_clock.advance(LEASE_SECONDS)
        assert claims.reap(store) == 1

    (job,) = job_rows(store, batch)
    assert (job.state, job.attempts) == (JobState.FAILED, 0)
    assert job.error.startswith("worker_lost: ")
    assert state(store, batch) is BatchState.COMPLETED
    assert_consistent(store)


def test_a_lapsed_lease_of_a_cancelled_batch_ends_cancelled_and_closes_it(
    store: Database, store_clock: ManualClock
) -> None:
    batch = submit(store, 2).batch_id
    claim(store, batch, 1)
    moves.cancel(store, batch)
    assert state(store, batch) is BatchState.CANCELLING
    store_clock.advance(LEASE_SECONDS)

    assert claims.reap(store) == 1

    assert [job.state for job in job_rows(store, batch)] == [JobState.CANCELLED, JobState.CANCELLED]
    assert state(store, batch) is BatchState.CANCELLED
    assert_consistent(store)


def test_a_lapsed_lease_past_the_deadline_ends_expired(store: Database, store_clock: ManualClock) -> None:
    batch = submit(store, 1, deadline_at=START + timedelta(seconds=5)).batch_id
    claim(store, batch)
    store_clock.advance(LEASE_SECONDS)

    assert claims.reap(store) == 1

    (job,) = job_rows(store, batch)
    assert (job.state, job.error) == (JobState.EXPIRED, "deadline")
    assert state(store, batch) is BatchState.EXPIRED
    assert_consistent(store)


def test_one_reaper_round_takes_from_several_batches(store: Database, store_clock: ManualClock) -> None:
    ids = [submit(store, 2, source_key=f"source {n}").batch_id for n in range(3)]
    for batch in ids:
        claim(store, batch)
    store_clock.advance(LEASE_SECONDS)

    assert claims.reap(store, limit=4) == 4
    assert claims.reap(store, limit=4) == 2

    assert [batches.get(store, batch).pending for batch in ids] == [2, 2, 2]
    assert_consistent(store)


def test_the_runnable_batches_are_those_with_jobs_to_claim_the_nearest_deadline_first(
    store: Database, store_clock: ManualClock
) -> None:
    def make(name: str, **more: object) -> str:
        return submit(store, 1, source_key=name, **more).batch_id

    none = make("no deadline")
    store_clock.advance(1)
    late = make("late", deadline_at=START + timedelta(hours=9))
    soon = make("soon", deadline_at=START + timedelta(hours=2))
    make("over", deadline_at=START)
    make("later", not_before=START + timedelta(hours=1))
    moves.pause(store, make("paused"))
    claim(store, make("claimed"))
    resting = make("resting")
    finish(store, claim(store, resting), Requeued(delay_seconds=60))

    assert [work.id for work in batches.runnable(store)] == [soon, late, none]
    store_clock.advance(60)
    assert [work.id for work in batches.runnable(store)] == [soon, late, none, resting]
