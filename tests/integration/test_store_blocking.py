"""A batch that no job of can succeed waits, and one job at a time finds out when that has changed."""

from datetime import timedelta

import pytest

from jobs.job import Job
from jobs.outcomes import Failed, Requeued, Symptom
from jobs.states import BatchState
from jobs.store import batches, claims, events, moves
from jobs.store.database import Database
from tests.support.store import (
    LEASE_SECONDS,
    START,
    ManualClock,
    assert_consistent,
    attempt,
    claim,
    finish,
    state,
    submit,
    succeed,
)

WHY = "401 from gpu: the key is not valid"


def block(store: Database, held: list[Job], why: str = WHY) -> None:
    finish(store, held, Requeued(blocked=why), attempt(Symptom.BLOCKED))


def test_a_wave_of_refusals_blocks_once_and_gives_no_more_jobs(store: Database) -> None:
    batch = submit(store, 10).batch_id
    held = claim(store, batch, 6)

    for job in held:
        block(store, [job])

    shown = batches.get(store, batch)
    assert (shown.blocked, shown.probe_at, shown.pending) == (WHY, START + timedelta(seconds=5), 10)
    assert claim(store, batch) == []
    assert batches.runnable(store) == []
    assert [event.kind for event in events.recent(store, batch)] == ["blocked", "submitted"]


def test_who_submits_again_may_have_mended_it_and_need_not_wait_for_the_next_probe(
    store: Database, store_clock: ManualClock
) -> None:
    batch = submit(store, 10).batch_id
    block(store, claim(store, batch, 1))
    store_clock.advance(1)
    assert batches.runnable(store) == []

    submit(store, 10)

    assert [work.id for work in batches.runnable(store)] == [batch]
    assert len(claim(store, batch)) == 1
    assert batches.get(store, batch).blocked == WHY


def test_who_retries_may_have_mended_it_too(store: Database, store_clock: ManualClock) -> None:
    batch = submit(store, 10).batch_id
    held = claim(store, batch, 2)
    finish(store, held[:1], Failed("refused"), attempt(Symptom.REFUSED))
    block(store, held[1:])
    store_clock.advance(1)
    assert batches.runnable(store) == []

    assert moves.retry(store, batch, None) == 1

    assert [work.id for work in batches.runnable(store)] == [batch]
    assert batches.get(store, batch).blocked == WHY


def test_one_job_probes_and_its_refusal_doubles_the_wait_up_to_five_minutes(
    store: Database, store_clock: ManualClock
) -> None:
    batch = submit(store, 10).batch_id
    block(store, claim(store, batch, 1))

    waits = []
    for _ in range(9):
        probe_at = batches.get(store, batch).probe_at
        assert probe_at is not None
        waits.append((probe_at - store_clock.instant).total_seconds())
        store_clock.advance(waits[-1] - 0.1)
        assert claim(store, batch) == []
        store_clock.advance(0.1)
        assert [work.id for work in batches.runnable(store)] == [batch]
        probe = claim(store, batch)
        assert len(probe) == 1
        assert claim(store, batch) == [], "a second probe beside the first"
        block(store, probe)
    assert waits == [5, 10, 20, 40, 80, 160, 300, 300, 300]
    assert_consistent(store)


def test_stragglers_of_the_first_wave_do_not_prolong_the_wait(store: Database, store_clock: ManualClock) -> None:
    batch = submit(store, 10).batch_id
    held = claim(store, batch, 5)
    block(store, held[:1])
    store_clock.advance(5)
    probe = claim(store, batch)

    block(store, held[1:])

    block(store, probe)
    assert batches.get(store, batch).probe_at == store_clock.instant + timedelta(seconds=10)


def test_a_success_of_any_job_lifts_the_block(store: Database, store_clock: ManualClock) -> None:
    batch = submit(store, 10).batch_id
    held = claim(store, batch, 2)
    block(store, held[:1])

    succeed(store, held[1:])

    assert batches.get(store, batch).blocked is None
    assert events.recent(store, batch)[0].kind == "unblocked"
    assert len(claim(store, batch)) == 9


@pytest.mark.parametrize("symptom", [Symptom.INVALID_OUTPUT, Symptom.TOO_LONG, Symptom.REFUSED])
def test_a_served_request_lifts_the_block_whatever_its_answer_was_worth(
    store: Database, store_clock: ManualClock, symptom: Symptom
) -> None:
    batch = submit(store, 10).batch_id
    block(store, claim(store, batch, 1))
    store_clock.advance(5)

    finish(store, claim(store, batch), Failed(f"{symptom}: "), attempt(symptom))

    assert batches.get(store, batch).blocked is None


def test_a_probe_that_tells_nothing_is_followed_by_another(store: Database, store_clock: ManualClock) -> None:
    batch = submit(store, 10).batch_id
    block(store, claim(store, batch, 1))
    store_clock.advance(5)

    finish(store, claim(store, batch), Requeued(is_yield=True), attempt(Symptom.WITHDRAWN))

    assert claim(store, batch) == []
    store_clock.advance(5)
    assert len(claim(store, batch)) == 1
    assert batches.get(store, batch).blocked == WHY


def test_a_probe_whose_worker_died_is_followed_by_another(store: Database, store_clock: ManualClock) -> None:
    batch = submit(store, 10).batch_id
    block(store, claim(store, batch, 1))
    store_clock.advance(5)
    claim(store, batch)
    store_clock.advance(LEASE_SECONDS)

    claims.reap(store)

    store_clock.advance(5)
    assert len(claim(store, batch)) == 1


def test_a_blocked_batch_that_ends_is_blocked_no_more(store: Database, store_clock: ManualClock) -> None:
    batch = submit(store, 3).batch_id
    block(store, claim(store, batch, 1))

    moves.cancel(store, batch)

    assert state(store, batch) is BatchState.CANCELLED
    assert batches.get(store, batch).blocked is None
    assert_consistent(store)
