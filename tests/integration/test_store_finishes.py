"""What becomes of a job is written once, by whoever still holds it."""

from datetime import timedelta

import pytest
from sqlalchemy import select

from jobs.job import Finish
from jobs.outcomes import Cancelled, Expired, Failed, Outcome, Requeued, Succeeded, Symptom, Usage
from jobs.states import BatchState, JobState
from jobs.store import batches, claims, events, finishes, moves
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


def test_a_success_is_kept_with_its_attempt_and_its_result(store: Database, store_clock: ManualClock) -> None:
    batch = submit(store, 1).batch_id
    (job,) = claim(store, batch)
    store_clock.advance(2)

    assert succeed(store, [job], "shipping") == {job.id}

    (row,) = job_rows(store, batch)
    assert (row.state, row.attempts, row.finished_at) == (JobState.SUCCEEDED, 1, START + timedelta(seconds=2))
    with store.read() as connection:
        made = connection.execute(select(attempts)).one()
        result = connection.execute(select(results)).one()
    assert (made.number, made.pool, made.worker, made.outcome, made.label) == (
        1,
        "gpu",
        "worker-1",
        "succeeded",
        "shipping",
    )
    assert (made.seconds, made.ttft_seconds, made.prompt_tokens, made.completion_tokens) == (1.25, 0.25, 500, 10)
    assert (result.label, result.raw, result.latency_seconds) == ("shipping", None, 1.25)
    assert_consistent(store)


@pytest.mark.parametrize(
    ("outcome", "state", "error"),
    [
        (Failed("refused: content filter"), JobState.FAILED, "refused: content filter"),
        (Expired(), JobState.EXPIRED, "deadline"),
        (Cancelled(), JobState.CANCELLED, None),
        (Requeued(), JobState.PENDING, None),
    ],
)
def test_every_other_outcome_has_its_state(
    store: Database, outcome: Outcome, state: JobState, error: str | None
) -> None:
    batch = submit(store, 1).batch_id

    finish(store, claim(store, batch), outcome)

    (row,) = job_rows(store, batch)
    assert (row.state, row.error, row.lease_token) == (state, error, None)
    assert (row.finished_at is None) == (state is JobState.PENDING)
    assert_consistent(store)


def test_a_return_counts_as_its_outcome_says(store: Database) -> None:
    batch = submit(store, 1).batch_id

    finish(store, claim(store, batch), Requeued(is_yield=True), attempt(Symptom.WITHDRAWN))
    finish(store, claim(store, batch), Requeued(spends_attempt=True, truncate=True), attempt(Symptom.TOO_LONG))
    finish(store, claim(store, batch), Requeued(spends_attempt=True), attempt(Symptom.TIMED_OUT))

    (job,) = claim(store, batch)
    assert (job.attempts, job.requeues, job.truncated) == (2, 3, True)
    counts = batches.get(store, batch)
    assert (counts.yields, counts.withdrawn) == (1, 1)
    with store.read() as connection:
        numbers = list(connection.execute(select(attempts.c.number).order_by(attempts.c.number)).scalars())
    assert numbers == [1, 2, 3]


def test_tokens_of_withdrawn_attempts_are_counted_and_are_waste(store: Database) -> None:
    batch = submit(store, 3).batch_id
    first, second, third = claim(store, batch)

    finishes.write(
        store,
        [
            Finish(first, Succeeded("shipping"), attempt(label="shipping", usage=Usage(100, 5))),
            Finish(second, Requeued(is_yield=True), attempt(Symptom.WITHDRAWN, usage=Usage(200, 3))),
            Finish(third, Requeued(is_yield=True), attempt(Symptom.STOPPING, usage=Usage(300, 1))),
        ],
    )

    counts = batches.get(store, batch)
    assert (counts.prompt_tokens, counts.completion_tokens, counts.wasted_tokens) == (600, 9, 504)
    assert (counts.yields, counts.withdrawn) == (2, 1)


def test_an_invalid_answer_is_kept_bounded(store: Database) -> None:
    batch = submit(store, 1).batch_id

    made = attempt(Symptom.INVALID_OUTPUT, raw="x" * 100_000, detail="y" * 100_000)
    finish(store, claim(store, batch), Failed("invalid_output: " + "z" * 100_000), made)

    (row,) = job_rows(store, batch)
    with store.read() as connection:
        raw = connection.execute(select(results.c.raw)).scalar_one()
        detail = connection.execute(select(attempts.c.detail)).scalar_one()
    assert raw == "x" * finishes.RAW_CHARACTERS
    assert len(row.error) == len(detail) == finishes.ERROR_CHARACTERS


def test_text_that_no_database_can_hold_is_cleaned(store: Database) -> None:
    batch = submit(store, 1).batch_id

    made = attempt(Symptom.INVALID_OUTPUT, raw="nul \0 and \ud83d alone", detail="\0", label="\udfff")
    finish(store, claim(store, batch), Failed("invalid_output: \0"), made)

    with store.read() as connection:
        assert connection.execute(select(results.c.raw)).scalar_one() == "nul \ufffd and \ufffd alone"
    assert job_rows(store, batch)[0].error == "invalid_output: \ufffd"


def test_a_success_without_an_attempt_is_a_fault(store: Database) -> None:
    batch = submit(store, 1).batch_id

    with pytest.raises(ValueError, match="succeeded without an attempt"):
        finish(store, claim(store, batch), Succeeded("shipping"))


def test_the_loser_of_a_lease_writes_nothing(store: Database, store_clock: ManualClock) -> None:
    batch = submit(store, 2).batch_id
    zombie, healthy = claim(store, batch)
    store_clock.advance(LEASE_SECONDS - 1)
    claims.renew(store, {healthy.lease_token}, LEASE_SECONDS)
    with store.begin() as connection:  # only the zombie's lease has lapsed
        connection.exec_driver_sql(f"UPDATE jobs SET lease_token = 'other' WHERE id = {zombie.id}")

    assert succeed(store, [zombie, healthy]) == {healthy.id}

    assert [row.state for row in job_rows(store, batch)] == [JobState.RUNNING, JobState.SUCCEEDED]
    assert (count_rows(store, attempts), count_rows(store, results)) == (1, 1)
    assert_consistent(store)


def test_a_zombie_cannot_finish_what_another_worker_holds_or_has_done(
    store: Database, store_clock: ManualClock
) -> None:
    batch = submit(store, 1).batch_id
    (zombie,) = claim(store, batch)
    store_clock.advance(LEASE_SECONDS)
    claims.reap(store)

    assert succeed(store, [zombie], "billing") == set()  # pending
    (job,) = claim(store, batch)
    assert succeed(store, [zombie], "billing") == set()  # held by another
    assert succeed(store, [job], "shipping") == {job.id}
    assert succeed(store, [zombie], "billing") == set()  # done

    with store.read() as connection:
        assert connection.execute(select(results.c.label)).scalars().all() == ["shipping"]
    assert batches.get(store, batch).succeeded == 1
    assert_consistent(store)


def test_two_finishes_of_one_lease_are_one(store: Database) -> None:
    batch = submit(store, 2).batch_id
    first, second = claim(store, batch)
    both = [Finish(first, Succeeded("shipping"), attempt(label="shipping")), Finish(first, Failed("refused: late"))]

    assert finishes.write(store, both) == {first.id}
    assert finishes.write(store, both) == set()

    counts = batches.get(store, batch)
    assert (counts.succeeded, counts.failed, counts.running) == (1, 0, 1)
    assert finishes.write(store, []) == set()
    succeed(store, [second])
    assert_consistent(store)


def test_of_two_leases_of_one_job_in_one_write_the_later_counts(store: Database, store_clock: ManualClock) -> None:
    batch = submit(store, 1).batch_id
    old = claim(store, batch)
    store_clock.advance(LEASE_SECONDS)
    claims.reap(store)
    new = claim(store, batch)

    assert succeed(store, old + new) == {new[0].id}

    assert batches.get(store, batch).succeeded == 1
    assert_consistent(store)


def test_the_last_finish_closes_the_batch(store: Database, store_clock: ManualClock) -> None:
    batch = submit(store, 3).batch_id
    held = claim(store, batch)

    succeed(store, held[:2])
    assert state(store, batch) is BatchState.RUNNING
    store_clock.advance(7)
    finish(store, held[2:], Failed("refused: filter"))

    shown = batches.get(store, batch)
    assert (shown.state, shown.finished_at) == (BatchState.COMPLETED, START + timedelta(seconds=7))
    last = events.recent(store, batch)[0]
    assert (last.kind, last.detail["succeeded"], last.detail["failed"]) == ("completed", 2, 1)


def test_a_batch_with_an_expired_job_ends_expired(store: Database) -> None:
    batch = submit(store, 2).batch_id
    first, second = claim(store, batch)

    finish(store, [first], Expired())
    succeed(store, [second])

    assert state(store, batch) is BatchState.EXPIRED


def test_a_job_returned_to_a_batch_that_is_being_cancelled_ends_cancelled(store: Database) -> None:
    batch = submit(store, 5).batch_id
    held = claim(store, batch, 3)
    moves.cancel(store, batch)

    finishes.write(
        store,
        [
            Finish(held[0], Succeeded("shipping"), attempt(label="shipping")),
            Finish(held[1], Requeued(is_yield=True), attempt(Symptom.WITHDRAWN)),
            Finish(held[2], Cancelled(), attempt(Symptom.CANCELLED)),
        ],
    )

    counts = batches.get(store, batch)
    assert (counts.state, counts.succeeded, counts.cancelled) == (BatchState.CANCELLED, 1, 4)
    assert_consistent(store)


def test_a_job_returned_past_the_deadline_ends_expired(store: Database, store_clock: ManualClock) -> None:
    batch = submit(store, 1, deadline_at=START + timedelta(seconds=1)).batch_id
    held = claim(store, batch)
    store_clock.advance(1)

    finish(store, held, Requeued(is_yield=True), attempt(Symptom.DEADLINE))

    (row,) = job_rows(store, batch)
    assert (row.state, row.error) == (JobState.EXPIRED, "deadline")
    assert state(store, batch) is BatchState.EXPIRED
    assert_consistent(store)


def test_one_write_serves_several_batches(store: Database) -> None:
    ids = [submit(store, 2, source_key=f"source {n}").batch_id for n in range(3)]
    held = [job for batch in ids for job in claim(store, batch)]

    assert succeed(store, held) == {job.id for job in held}

    assert [state(store, batch) for batch in ids] == [BatchState.COMPLETED] * 3
    assert_consistent(store)


def test_a_paused_batch_closes_with_its_last_job_in_flight(store: Database) -> None:
    batch = submit(store, 1).batch_id
    held = claim(store, batch)
    moves.pause(store, batch)

    succeed(store, held)

    assert state(store, batch) is BatchState.COMPLETED
