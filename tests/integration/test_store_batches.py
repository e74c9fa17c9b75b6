"""The moves of a batch, the illegal ones too, and what is shown of it."""

from datetime import date, timedelta

import pytest

from jobs.outcomes import Expired, Failed, Symptom
from jobs.states import BatchState, JobState
from jobs.store import batches, claims, events, moves
from jobs.store.database import Database
from jobs.tables import attempts, results
from tests.support.store import (
    LEASE_SECONDS,
    START,
    ManualClock,
    assert_consistent,
    attempt,
    claim,
    count_rows,
    finish,
    job_rows,
    state,
    submit,
    succeed,
)
from tickets_batch.errors import UserError


def in_state(store: Database, wanted: BatchState) -> str:
    """A batch of three tickets, one of them done, in the wanted state."""
    batch = submit(store, 3).batch_id
    held = claim(store, batch, 1 if wanted is not BatchState.COMPLETED else 3)
    if wanted is BatchState.PAUSED:
        moves.pause(store, batch)
    if wanted is BatchState.CANCELLING:
        moves.cancel(store, batch)
        return batch
    if wanted is BatchState.EXPIRED:
        held += claim(store, batch)
        finish(store, held[1:], Expired())
    succeed(store, held if wanted is not BatchState.EXPIRED else held[:1])
    if wanted is BatchState.CANCELLED:
        moves.cancel(store, batch)
    assert state(store, batch) is wanted
    return batch


FINAL = (BatchState.COMPLETED, BatchState.EXPIRED, BatchState.CANCELLED)


@pytest.mark.parametrize(
    ("verb", "states"),
    [
        ("pause", (BatchState.PAUSED, BatchState.CANCELLING, *FINAL)),
        ("resume", (BatchState.RUNNING, BatchState.CANCELLING, *FINAL)),
        ("cancel", FINAL),
        ("retry", (BatchState.CANCELLING, BatchState.CANCELLED)),
    ],
)
def test_an_illegal_move_is_refused_in_one_line(store: Database, verb: str, states: tuple[BatchState, ...]) -> None:
    for wanted in states:
        batch = in_state(store, wanted)
        before = batches.get(store, batch)
        arguments = (None,) if verb == "retry" else ()

        with pytest.raises(UserError) as error:
            getattr(moves, verb)(store, batch, *arguments)

        assert str(error.value) == f"batch {batch} is {wanted}: nothing to {verb}"
        assert batches.get(store, batch) == before
        with store.begin() as connection:  # the next one needs the same source and date
            connection.exec_driver_sql("DELETE FROM batches")


@pytest.mark.parametrize("verb", [moves.pause, moves.resume, moves.cancel, batches.get, batches.work])
def test_a_batch_that_does_not_exist_is_named(store: Database, verb: object) -> None:
    with pytest.raises(UserError, match="there is no batch batch_nowhere"):
        verb(store, "batch_nowhere")  # type: ignore[operator]


def test_pause_and_resume(store: Database) -> None:
    batch = submit(store, 2).batch_id

    moves.pause(store, batch)
    assert (state(store, batch), claim(store, batch)) == (BatchState.PAUSED, [])
    moves.resume(store, batch)

    assert len(claim(store, batch)) == 2
    assert [event.kind for event in events.recent(store, batch)] == ["running", "paused", "submitted"]


def test_cancel_without_jobs_in_flight_ends_at_once(store: Database) -> None:
    batch = submit(store, 2 * moves.CHUNK + 1).batch_id

    moves.cancel(store, batch)

    counts = batches.get(store, batch)
    assert (counts.state, counts.cancelled, counts.pending) == (BatchState.CANCELLED, 2 * moves.CHUNK + 1, 0)
    assert counts.finished_at == START
    assert_consistent(store)


def test_cancel_waits_for_the_jobs_in_flight(store: Database) -> None:
    batch = submit(store, 3).batch_id
    held = claim(store, batch, 1)

    moves.cancel(store, batch)
    assert batches.work(store, batch).state is BatchState.CANCELLING
    moves.cancel(store, batch)  # once more changes nothing
    succeed(store, held)

    counts = batches.get(store, batch)
    assert (counts.state, counts.succeeded, counts.cancelled) == (BatchState.CANCELLED, 1, 2)
    assert_consistent(store)


def test_a_cancel_that_was_killed_half_way_is_taken_up(store: Database) -> None:
    batch = submit(store, 3).batch_id
    with store.begin() as connection:
        connection.exec_driver_sql("UPDATE batches SET state = 'cancelling'")

    moves.expire_overdue(store)

    assert state(store, batch) is BatchState.CANCELLED
    assert_consistent(store)


def test_what_is_pending_at_the_deadline_expires_and_what_is_running_is_left(
    store: Database, store_clock: ManualClock
) -> None:
    deadline = START + timedelta(hours=1)
    batch = submit(store, moves.CHUNK + 3, deadline_at=deadline).batch_id
    other = submit(store, 2, source_key="other", deadline_at=deadline + timedelta(hours=1)).batch_id
    held = claim(store, batch, 2)

    assert moves.expire_overdue(store) == 0
    store_clock.advance(3600)
    assert moves.expire_overdue(store) == moves.CHUNK + 1

    counts = batches.get(store, batch)
    assert (counts.state, counts.expired, counts.running) == (BatchState.RUNNING, moves.CHUNK + 1, 2)
    assert job_rows(store, batch)[-1].error == "deadline"
    succeed(store, held)
    assert (state(store, batch), state(store, other)) == (BatchState.EXPIRED, BatchState.RUNNING)
    assert moves.expire_overdue(store) == 0
    assert_consistent(store)


def test_a_paused_batch_expires_too(store: Database, store_clock: ManualClock) -> None:
    batch = submit(store, 2, deadline_at=START + timedelta(hours=1)).batch_id
    moves.pause(store, batch)
    store_clock.advance(3600)

    assert moves.expire_overdue(store) == 2

    assert state(store, batch) is BatchState.EXPIRED


def test_retry_returns_exactly_what_failed_or_expired(store: Database, store_clock: ManualClock) -> None:
    batch = submit(store, 4, deadline_at=START + timedelta(hours=1)).batch_id
    held = claim(store, batch)
    succeed(store, held[:1])
    finish(store, held[1:2], Failed("invalid_output: empty"), attempt(Symptom.INVALID_OUTPUT, raw=""))
    finish(store, held[2:3], Expired())
    finish(store, held[3:], Failed("refused: filter"), attempt(Symptom.REFUSED))
    assert state(store, batch) is BatchState.EXPIRED
    store_clock.advance(7200)

    assert moves.retry(store, batch, START + timedelta(hours=9)) == 3

    shown = batches.get(store, batch)
    assert (shown.state, shown.finished_at) == (BatchState.RUNNING, None)
    assert shown.deadline_at == START + timedelta(hours=9)
    assert (shown.succeeded, shown.pending, shown.failed, shown.expired) == (1, 3, 0, 0)
    assert (count_rows(store, results), count_rows(store, attempts)) == (1, 3)
    again = claim(store, batch)
    assert [(job.custom_id, job.attempts) for job in again] == [("t-1", 0), ("t-2", 0), ("t-3", 0)]
    succeed(store, again)
    assert state(store, batch) is BatchState.COMPLETED
    assert_consistent(store)


def test_retry_of_a_batch_that_still_runs_keeps_what_is_in_flight(store: Database) -> None:
    batch = submit(store, 3).batch_id
    held = claim(store, batch, 2)
    finish(store, held[:1], Failed("refused: filter"))

    assert moves.retry(store, batch, None) == 1

    assert succeed(store, held[1:]) == {held[1].id}
    assert [job.custom_id for job in claim(store, batch)] == ["t-2", "t-0"]
    assert_consistent(store)


def test_retry_of_a_paused_batch_leaves_it_paused(store: Database) -> None:
    batch = submit(store, 2).batch_id
    finish(store, claim(store, batch, 1), Failed("refused: filter"))
    moves.pause(store, batch)

    moves.retry(store, batch, None)

    assert state(store, batch) is BatchState.PAUSED


def test_retry_of_many_chunks(store: Database) -> None:
    batch = submit(store, moves.CHUNK + 5).batch_id
    held = claim(store, batch, moves.CHUNK + 5)
    finish(store, held, Failed("refused: filter"))

    assert moves.retry(store, batch, None) == moves.CHUNK + 5

    assert len(claim(store, batch, 5_000)) == moves.CHUNK + 5
    assert_consistent(store)


def test_retry_without_anything_to_retry_is_refused(store: Database) -> None:
    batch = in_state(store, BatchState.COMPLETED)

    with pytest.raises(UserError, match="has no failed or expired jobs: nothing to retry"):
        moves.retry(store, batch, None)


def test_a_job_reaped_before_a_retry_may_be_reaped_as_often_again(store: Database, store_clock: ManualClock) -> None:
    batch = submit(store, 1).batch_id
    for _ in range(claims.REAPS):
        claim(store, batch)
        store_clock.advance(LEASE_SECONDS)
        claims.reap(store)
    moves.retry(store, batch, None)

    claim(store, batch)
    store_clock.advance(LEASE_SECONDS)
    claims.reap(store)

    assert job_rows(store, batch)[0].state == JobState.PENDING


def test_what_is_shown(store: Database) -> None:
    batch = submit(store, 2, deadline_at=START + timedelta(hours=9)).batch_id

    shown, work = batches.get(store, batch), batches.work(store, batch)

    assert shown.date == date(2026, 11, 30)
    assert (shown.zone, shown.source, shown.sequence) == ("Europe/Berlin", "exports/tickets-2026-11-30.csv", 1)
    assert (shown.pools, shown.created_at, shown.total) == (("gpu",), START, 2)
    assert list(work.spec["labels"]) == ["shipping", "billing"], "the order of the labels is part of the prompt"
    assert (work.model, work.pools, work.pending) == ("qwen2.5-7b-instruct", ("gpu",), 2)


def test_the_newest_come_first(store: Database, store_clock: ManualClock) -> None:
    ids = []
    for n in range(3):
        ids.append(submit(store, 1, source_key=f"source {n}").batch_id)
        store_clock.advance(1)

    assert [shown.id for shown in batches.newest_first(store)] == ids[::-1]
    assert [shown.id for shown in batches.newest_first(store, limit=1)] == ids[2:]
    assert batches.resolve(store, "latest") == ids[2]


def test_a_batch_is_found_by_its_beginning(store: Database) -> None:
    first = submit(store, 1, date=date(2026, 11, 29)).batch_id
    second = submit(store, 1).batch_id

    assert batches.resolve(store, first) == first
    assert batches.resolve(store, "batch_20261129") == first
    assert batches.resolve(store, "20261130") == second
    with pytest.raises(UserError, match=r"fits several batches \(batch_.*, batch_.*\): write more"):
        batches.resolve(store, "batch_2026")


@pytest.mark.parametrize("text", ["nothing", "", "%", "batch_2026_"])
def test_what_fits_no_batch_is_said(store: Database, text: str) -> None:
    submit(store, 1)

    with pytest.raises(UserError, match="no batch begins with") as error:
        batches.resolve(store, text)
    assert "\n" not in str(error.value)


def test_there_is_no_latest_batch_at_first(store: Database) -> None:
    with pytest.raises(UserError, match="there is no batch yet"):
        batches.resolve(store, "latest")
