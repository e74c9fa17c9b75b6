"""Submitting, and submitting again: section 4.1 of the design."""

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import date, timedelta
from pathlib import Path

import pytest
from sqlalchemy import select, update

from jobs.outcomes import Expired, Failed, Requeued, Symptom
from jobs.states import BatchState, JobState
from jobs.store import batches, chunks, claims, events, moves, results, submissions
from jobs.store.database import Database
from jobs.store.loading import LOADER_SECONDS
from jobs.store.spool import Spooled
from jobs.tables import batches as batches_table
from jobs.tables import jobs as jobs_table
from jobs.ticket import Rejection, Ticket
from tests.support.store import (
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
    ticket,
)
from tickets_batch.errors import UserError

ROOT = Path(__file__).resolve().parents[2]


class SourceBroke(Exception):
    """Raised by a source that cannot be read to its end."""


def breaking(rows: int) -> Iterator[Ticket]:
    yield from (ticket(number) for number in range(rows))
    raise SourceBroke


def loader_of_another_machine(store: Database, batch: str, at: ManualClock) -> None:
    lease = {"loader_token": "other", "loader_expires_at": at() + timedelta(seconds=LOADER_SECONDS)}
    with store.begin() as connection:
        connection.execute(
            update(batches_table).where(batches_table.c.id == batch).values(loader={"host": "far", "pid": 1}, **lease)
        )


# A new batch


def test_a_new_batch_runs_when_its_last_ticket_is_in(store: Database) -> None:
    done = submit(store, [ticket(1), ticket(2), Rejection(4, "empty body", "t-3")])

    assert (done.created, done.reopened, done.added, done.already, done.rejected) == (True, False, 2, 0, 1)
    assert done.rejections == (Rejection(4, "empty body", "t-3"),)
    assert results.rejected(store, done.batch_id) == [Rejection(4, "empty body", "t-3")]
    shown = batches.get(store, done.batch_id)
    assert (shown.state, shown.total, shown.pending, shown.rejected) == (BatchState.RUNNING, 2, 2, 1)
    assert shown.id.startswith("batch_20261130_")
    assert_consistent(store)


def test_jobs_stand_in_the_order_of_the_source_over_many_chunks(store: Database) -> None:
    count = 2 * submissions.CHUNK + 7

    batch = submit(store, count).batch_id

    assert [row.custom_id for row in results.stream(store, batch)] == [f"t-{number}" for number in range(count)]
    assert_consistent(store)


def test_a_duplicate_id_is_a_rejection_that_names_the_first(store: Database) -> None:
    again = Ticket("t-1", "Question 1", "Where is parcel 1?", line=7)
    other = Ticket("t-1", "Question 1", "It came.", line=8)

    done = submit(store, [ticket(1), again, ticket(2), other])

    assert (done.added, done.rejected) == (2, 2)
    assert [(row.line, row.reason) for row in done.rejections] == [
        (7, "duplicate id, first at line 3 with the same text"),
        (8, "duplicate id, first at line 3 with another text"),
    ]


def test_three_tickets_with_one_text_are_three_tickets(store: Database) -> None:
    done = submit(store, [ticket(1, "Hi"), Ticket("a", "Question 1", "Hi"), Ticket("b", "Question 1", "Hi")])

    assert (done.added, done.reused) == (3, 0)
    assert len(claim(store, done.batch_id)) == 3


def test_an_id_too_long_for_an_index_is_a_rejection(store: Database) -> None:
    done = submit(store, [ticket(1), Ticket("x" * 3_000, "", "Hi", line=9)])

    assert (done.added, done.rejections[0].line, done.rejections[0].reason) == (
        1,
        9,
        "id is longer than 500 characters",
    )


def test_text_that_no_database_can_hold_is_cleaned(store: Database) -> None:
    batch = submit(store, [Ticket("nul\0", "lone \ud83d", "a\0b\udfffc", priority=2**70)]).batch_id

    (job,) = claim(store, batch)
    assert (job.custom_id, job.subject, job.body) == ("nul\ufffd", "lone \ufffd", "a\ufffdb\ufffdc")


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ([], "it has no rows"),
        ([Rejection(2, "empty body"), Rejection(5, "no id")], "2 rows cannot be used, the first is line 2: empty body"),
    ],
)
def test_a_source_without_a_usable_ticket_leaves_nothing_behind(
    store: Database, rows: list[Ticket | Rejection], why: str
) -> None:
    with pytest.raises(UserError, match=f"no usable tickets for 2026-11-30 in .*: {why}"):
        submit(store, rows)

    assert count_rows(store, batches_table) == 0


def test_an_empty_batch_is_made_on_request_and_is_done_at_once(store: Database) -> None:
    done = submit(store, [Rejection(2, "empty body")], allow_empty=True)

    shown = batches.get(store, done.batch_id)
    assert (shown.state, shown.total, shown.rejected) == (BatchState.COMPLETED, 0, 1)
    assert list(results.stream(store, done.batch_id)) == []


def test_a_source_that_breaks_midway_leaves_nothing_behind(store: Database) -> None:
    with pytest.raises(SourceBroke):
        submit(store, breaking(submissions.CHUNK + 1))

    assert count_rows(store, batches_table) == 0


def test_a_load_that_fails_leaves_nothing_behind(store: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    real, calls = chunks.put, iter(range(10))

    def put(*given: object) -> object:
        if next(calls) == 1:
            raise KeyboardInterrupt
        return real(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(chunks, "put", put)

    with pytest.raises(KeyboardInterrupt):
        submit(store, submissions.CHUNK + 1)

    assert (count_rows(store, batches_table), count_rows(store, jobs_table)) == (0, 0)


# The same again


def test_the_same_again_adds_nothing(store: Database) -> None:
    first = submit(store, 3)

    again = submit(store, 3)

    assert (again.batch_id, again.created, again.added, again.already) == (first.batch_id, False, 0, 3)
    assert_consistent(store)


def test_new_tickets_top_the_batch_up(store: Database) -> None:
    first = submit(store, [ticket(1), ticket(3)])
    held = claim(store, first.batch_id, 1)

    again = submit(store, [ticket(0), ticket(1), ticket(2), ticket(3)])

    assert (again.batch_id, again.added, again.already, again.reopened) == (first.batch_id, 2, 2, False)
    assert [job.custom_id for job in claim(store, again.batch_id)] == ["t-3", "t-0", "t-2"]
    succeed(store, held)
    assert [event.kind for event in events.recent(store, again.batch_id)] == ["topped_up", "submitted"]
    assert_consistent(store)


@pytest.mark.parametrize("ended", [BatchState.COMPLETED, BatchState.EXPIRED])
def test_new_tickets_open_a_finished_batch_again(store: Database, store_clock: ManualClock, ended: BatchState) -> None:
    batch = submit(store, 2, deadline_at=START + timedelta(hours=1)).batch_id
    held = claim(store, batch)
    succeed(store, held[:1])
    finish(store, held[1:], Failed("refused: filter") if ended is BatchState.COMPLETED else Expired())
    assert state(store, batch) is ended
    store_clock.advance(7200)

    again = submit(store, 3, deadline_at=START + timedelta(hours=9), not_before=START)

    assert (again.reopened, again.added) == (True, 1)
    shown = batches.get(store, batch)
    assert (shown.state, shown.finished_at, shown.deadline_at) == (
        BatchState.RUNNING,
        None,
        START + timedelta(hours=9),
    )
    new = claim(store, batch)
    assert [job.custom_id for job in new] == ["t-2"]
    succeed(store, new)
    assert state(store, batch) is ended
    assert_consistent(store)


@pytest.mark.parametrize("in_flight", [0, 1])
def test_what_is_added_past_the_deadline_comes_under_a_new_one_and_the_rest_expires(
    store: Database, store_clock: ManualClock, in_flight: int
) -> None:
    batch = submit(store, 3, deadline_at=START + timedelta(hours=1)).batch_id
    claim(store, batch, in_flight)
    store_clock.advance(7200)  # and no scheduler was there to end it

    again = submit(store, 4, deadline_at=START + timedelta(hours=9))

    assert (again.batch_id, again.reopened, again.added) == (batch, True, 1)
    shown = batches.get(store, batch)
    assert (shown.state, shown.deadline_at) == (BatchState.RUNNING, START + timedelta(hours=9))
    assert (shown.expired, shown.running, shown.pending) == (3 - in_flight, in_flight, 1)
    assert [job.custom_id for job in claim(store, batch)] == ["t-3"]
    assert_consistent(store)


def test_nothing_new_leaves_a_finished_batch_finished(store: Database) -> None:
    batch = submit(store, 1).batch_id
    succeed(store, claim(store, batch))

    again = submit(store, 1)

    assert (again.reopened, state(store, batch)) == (False, BatchState.COMPLETED)


def test_an_open_batch_keeps_its_deadline(store: Database) -> None:
    batch = submit(store, 1, deadline_at=START + timedelta(hours=9)).batch_id

    submit(store, 2, deadline_at=START + timedelta(hours=5))

    assert batches.get(store, batch).deadline_at == START + timedelta(hours=9)


def test_a_paused_batch_is_topped_up_and_stays_paused(store: Database) -> None:
    batch = submit(store, 1).batch_id
    moves.pause(store, batch)

    assert submit(store, 2).added == 1

    assert state(store, batch) is BatchState.PAUSED


def test_the_rejections_are_those_of_the_last_reading(store: Database) -> None:
    submit(store, [ticket(1), Rejection(3, "empty body"), Rejection(4, "no id")])

    batch = submit(store, [ticket(1), Rejection(4, "no id")]).batch_id

    assert results.rejected(store, batch) == [Rejection(4, "no id")]
    assert batches.get(store, batch).rejected == 1


def test_a_top_up_that_breaks_midway_changes_nothing(store: Database) -> None:
    batch = submit(store, 1).batch_id
    before = batches.get(store, batch)

    with pytest.raises(SourceBroke):
        submit(store, breaking(5))

    assert batches.get(store, batch) == before
    assert submit(store, 2).added == 1, "no lease was left behind"


# Changed text


def test_changed_text_is_listed_and_left_alone(store: Database) -> None:
    batch = submit(store, 3).batch_id

    again = submit(store, [ticket(0), ticket(1, "It came."), ticket(2)])

    assert (again.changed, again.changed_ids, again.updated) == (1, ("t-1",), 0)
    assert claim(store, batch)[1].body == "Where is parcel 1?"


@pytest.mark.parametrize("before", ["pending", "succeeded", "failed", "expired", "reused"])
def test_changed_text_is_taken_on_request(store: Database, before: str) -> None:
    if before == "reused":
        earlier = submit(store, 1, date=date(2026, 11, 29)).batch_id
        succeed(store, claim(store, earlier))
    batch = submit(store, 1).batch_id
    if before == "succeeded":
        succeed(store, claim(store, batch))
    elif before == "failed":
        made = attempt(Symptom.INVALID_OUTPUT, raw="")
        finish(store, claim(store, batch), Failed("invalid_output: empty"), made)
    elif before == "expired":
        finish(store, claim(store, batch), Expired())
    elif before == "pending":
        finish(store, claim(store, batch), Requeued(delay_seconds=600, spends_attempt=True, truncate=True))

    again = submit(store, [ticket(0, "It came.", priority=3)], update=True)

    assert (again.changed, again.updated, again.busy_ids) == (1, 1, ())
    assert again.reopened == (before != "pending")
    (job,) = claim(store, batch)
    assert (job.body, job.attempts, job.truncated) == ("It came.", 0, False)
    assert_consistent(store)
    succeed(store, [job], "billing")
    assert [row.label for row in results.stream(store, batch)] == ["billing"]
    assert submit(store, [ticket(0, "It came.")]).changed == 0
    assert_consistent(store)


def test_a_changed_ticket_in_flight_is_left_and_reported(store: Database) -> None:
    batch = submit(store, 2).batch_id
    held = claim(store, batch, 1)

    again = submit(store, [ticket(0, "It came."), ticket(1, "It came.")], update=True)

    assert (again.changed, again.updated, again.busy_ids) == (2, 1, ("t-0",))
    assert succeed(store, held) == {held[0].id}
    assert submit(store, [ticket(0, "It came.")], update=True).updated == 1
    assert_consistent(store)


# Another spec, another batch


def test_new_makes_a_second_batch_and_each_spec_finds_its_own(store: Database) -> None:
    first = submit(store, 1)
    second = submit(store, 1, spec_hash="b" * 64, new=True)

    assert second.created
    assert batches.get(store, second.batch_id).sequence == 2
    assert submit(store, 2).batch_id == first.batch_id
    assert submit(store, 2, spec_hash="b" * 64).batch_id == second.batch_id
    third = submit(store, 1, new=True)
    assert submit(store, 1).batch_id == third.batch_id, "of two with the same spec, the newer"


def test_a_cancelled_batch_stays_closed(store: Database) -> None:
    batch = submit(store, 2).batch_id
    held = claim(store, batch, 1)
    moves.cancel(store, batch)

    with pytest.raises(UserError, match=f"batch {batch} was cancelled and stays closed: add --new"):
        submit(store, 3)
    succeed(store, held)
    with pytest.raises(UserError, match="stays closed"):
        submit(store, 3)

    assert state(store, batch) is BatchState.CANCELLED
    assert submit(store, 3, new=True).added == 3


def test_another_day_or_source_or_every_row_is_another_batch(store: Database) -> None:
    ids = {
        submit(store, 1, **changed).batch_id
        for changed in ({}, {"date": date(2026, 11, 29)}, {"date": None}, {"source_key": "other"})
    }

    assert len(ids) == 4
    assert submit(store, 1, date=None).batch_id in ids


# Reuse


def test_the_answer_of_an_earlier_batch_is_reused(store: Database) -> None:
    earlier = submit(store, 2, date=date(2026, 11, 29)).batch_id
    held = claim(store, earlier)
    succeed(store, held[:1], "billing")
    finish(store, held[1:], Failed("invalid_output: empty"), attempt(Symptom.INVALID_OUTPUT))

    done = submit(store, 3)

    assert (done.added, done.reused) == (3, 1)
    rows = list(results.stream(store, done.batch_id))
    assert (rows[0].state, rows[0].label, rows[0].reused, rows[0].attempts) == (JobState.SUCCEEDED, "billing", True, 0)
    assert (rows[0].prompt_tokens, rows[0].completion_tokens, rows[0].latency_seconds) == (0, 0, None)
    assert [row.state for row in rows[1:]] == [JobState.PENDING, JobState.PENDING]
    assert batches.get(store, done.batch_id).reused == 1
    assert_consistent(store)


@pytest.mark.parametrize(
    "changed", [{"spec_hash": "b" * 64}, {"model": "llama-3"}, {"text": "Where is parcel 0"}, {"subject": "Question"}]
)
def test_another_spec_model_or_text_reuses_nothing(store: Database, changed: dict[str, str]) -> None:
    succeed(store, claim(store, submit(store, 1, date=date(2026, 11, 29)).batch_id))
    text, subject = changed.get("text", "Where is parcel 0?"), changed.get("subject", "Question 0")
    asked = {key: value for key, value in changed.items() if key not in ("text", "subject")}

    assert submit(store, [Ticket("t-0", subject, text)], **asked).reused == 0


def test_a_batch_all_of_whose_answers_are_known_is_done_at_once(store: Database) -> None:
    succeed(store, claim(store, submit(store, 2, date=date(2026, 11, 29)).batch_id))

    done = submit(store, 2)

    assert (done.reused, state(store, done.batch_id)) == (2, BatchState.COMPLETED)
    third = submit(store, 2, date=date(2026, 12, 1))
    assert third.reused == 2, "from the first, though the second has reused it too"
    assert_consistent(store)


def test_a_top_up_does_not_reuse_answers_of_its_own_batch(store: Database) -> None:
    batch = submit(store, [ticket(0, "Hi")]).batch_id
    succeed(store, claim(store, batch))

    assert submit(store, [ticket(0, "Hi"), Ticket("other", "Question 0", "Hi")]).reused == 0


# Two at once, and killed ones


def test_a_second_submit_is_refused_while_one_loads(store: Database, store_clock: ManualClock) -> None:
    batch = submit(store, 1).batch_id
    loader_of_another_machine(store, batch, store_clock)

    with pytest.raises(UserError, match=f"batch {batch} is being loaded by process 1 on far: wait for it"):
        submit(store, 2)
    finish(store, claim(store, batch), Failed("refused: filter"))
    with pytest.raises(UserError, match="is being loaded"):
        moves.retry(store, batch, None)
    store_clock.advance(LOADER_SECONDS)
    assert submit(store, 2).added == 1


def test_a_batch_does_not_close_while_it_is_loaded(store: Database, store_clock: ManualClock) -> None:
    batch = submit(store, 1).batch_id
    loader_of_another_machine(store, batch, store_clock)

    succeed(store, claim(store, batch))

    assert state(store, batch) is BatchState.RUNNING
    moves.expire_overdue(store)
    assert state(store, batch) is BatchState.RUNNING
    store_clock.advance(LOADER_SECONDS)
    moves.expire_overdue(store)
    assert state(store, batch) is BatchState.COMPLETED


def test_a_load_whose_batch_is_cancelled_stops(store: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    real = chunks.put
    cancelled: list[str] = []

    def put(db: Database, load: chunks.Load, chunk: list[Spooled]) -> chunks.Put:
        done = real(db, load, chunk)
        if not cancelled:
            cancelled.append(load.batch_id)
            moves.cancel(db, load.batch_id)
        return done

    monkeypatch.setattr(chunks, "put", put)

    with pytest.raises(UserError, match="was cancelled while it was being loaded"):
        submit(store, submissions.CHUNK + 1)

    counts = batches.get(store, cancelled[0])
    assert (counts.state, counts.cancelled, counts.total) == (
        BatchState.CANCELLED,
        submissions.CHUNK,
        submissions.CHUNK,
    )
    assert_consistent(store)


def killed_submit(url: str, tickets: int) -> None:
    command = [sys.executable, "-m", "tests.support.killed_submit", url, str(tickets)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == -9, done.stderr


def test_a_killed_load_is_invisible_to_workers_and_redone(database: Database, database_url: str) -> None:
    killed_submit(database_url, submissions.CHUNK + 5)
    (left,) = batches.newest_first(database)
    assert (left.state, left.pending) == (BatchState.LOADING, submissions.CHUNK)
    assert claims.claim(database, left.id, 10, "worker", 15) == []
    assert batches.runnable(database) == []

    done = submit(database, 7)

    assert (done.created, done.added) == (True, 7)
    assert [shown.id for shown in batches.newest_first(database)] == [done.batch_id]
    assert count_rows(database, jobs_table) == 7
    assert_consistent(database)


def test_a_killed_top_up_is_completed_by_the_next(database: Database, database_url: str) -> None:
    count = submissions.CHUNK + 5
    batch = submit(database, 10).batch_id
    killed_submit(database_url, count)
    assert batches.get(database, batch).total == submissions.CHUNK

    again = submit(database, count)

    assert (again.batch_id, again.already, again.added) == (batch, submissions.CHUNK, 5)
    assert batches.get(database, batch).total == count
    assert_consistent(database)


def test_of_eight_submits_at_once_each_ticket_is_taken_once(database: Database) -> None:
    def one(_: int) -> str:
        try:
            return submit(database, 200).batch_id
        except UserError as error:
            return str(error)

    with ThreadPoolExecutor(8) as threads:
        said = set(threads.map(one, range(8)))

    (made,) = batches.newest_first(database)
    assert made.id in said
    assert all("is being loaded by" in line or "has just begun" in line for line in said - {made.id})
    with database.read() as connection:
        ids = list(connection.execute(select(jobs_table.c.custom_id)).scalars())
    assert sorted(ids) == sorted({f"t-{number}" for number in range(200)})
    assert_consistent(database)


def test_the_rows_of_a_batch_are_streamed_page_by_page(store: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "PAGE", 3)
    first = submit(store, [ticket(n) for n in range(4)]).batch_id
    other = submit(store, 4, source_key="other").batch_id
    submit(store, [ticket(n) for n in range(7)])  # its jobs now stand on both sides of the other's

    assert [row.custom_id for row in results.stream(store, first)] == [f"t-{n}" for n in range(7)]
    assert [row.custom_id for row in results.stream(store, other)] == [f"t-{n}" for n in range(4)]
    assert len(job_rows(store, first)) == 7
