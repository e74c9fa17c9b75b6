"""What tests of the store need again and again: a clock to move, a batch, attempts, and a recount of everything."""

from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any

from sqlalchemy import Connection, case, func, select

from jobs.job import Finish, Job
from jobs.outcomes import Attempt, Outcome, Succeeded, Symptom, Usage
from jobs.states import BatchState, JobState
from jobs.store import batches, claims, finishes, submissions
from jobs.store.database import Database
from jobs.store.submissions import Submission, SubmitRequest
from jobs.tables import attempts, events, jobs, results, tickets
from jobs.tables import batches as batches_table
from jobs.ticket import Rejection, Ticket

START = datetime(2026, 11, 30, 22, 0, tzinfo=UTC)
LEASE_SECONDS = 15.0


class ManualClock:
    """A time that stands until it is moved."""

    def __init__(self, start: datetime = START) -> None:
        self.instant = start

    def __call__(self) -> datetime:
        return self.instant

    def advance(self, seconds: float) -> datetime:
        self.instant += timedelta(seconds=seconds)
        return self.instant


def request(**changed: Any) -> SubmitRequest:
    """What a test submits unless it says otherwise."""
    values: dict[str, Any] = {
        "source_key": "exports/tickets-{date}.csv",
        "source": "exports/tickets-2026-11-30.csv",
        "date": date(2026, 11, 30),
        "zone": "Europe/Berlin",
        "spec": {"labels": {"shipping": "delivery", "billing": "invoices"}},
        "spec_hash": "a" * 64,
        "model": "qwen2.5-7b-instruct",
        "pools": ("gpu",),
    }
    return SubmitRequest(**(values | changed))


def ticket(number: int, text: str | None = None, **more: Any) -> Ticket:
    body = f"Where is parcel {number}?" if text is None else text
    return Ticket(custom_id=f"t-{number}", subject=f"Question {number}", body=body, line=number + 2, **more)


def submit(db: Database, rows: int | Iterable[Ticket | Rejection], **changed: Any) -> Submission:
    """A batch of so many tickets, or of these rows."""
    given = (ticket(number) for number in range(rows)) if isinstance(rows, int) else rows
    return submissions.submit(db, request(**changed), given)


def claim(db: Database, batch_id: str, limit: int = 100, worker: str = "worker-1") -> list[Job]:
    return claims.claim(db, batch_id, limit, worker, LEASE_SECONDS)


def attempt(symptom: Symptom | None = None, label: str | None = None, **more: Any) -> Attempt:
    values: dict[str, Any] = {
        "started_at": START,
        "seconds": 1.25,
        "pool": "gpu",
        "model": "qwen2.5-7b-instruct",
        "usage": Usage(prompt_tokens=500, completion_tokens=10),
        "ttft_seconds": 0.25,
    }
    return Attempt(**(values | {"symptom": symptom, "label": label} | more))


def succeed(db: Database, held: Sequence[Job], label: str = "shipping") -> set[int]:
    return finishes.write(db, [Finish(job, Succeeded(label), attempt(label=label)) for job in held])


def finish(db: Database, held: Sequence[Job], outcome: Outcome, made: Attempt | None = None) -> set[int]:
    return finishes.write(db, [Finish(job, outcome, made) for job in held])


def state(db: Database, batch_id: str) -> BatchState:
    return batches.get(db, batch_id).state


def job_rows(db: Database, batch_id: str) -> list[Any]:
    """The rows of the batch's jobs in their order."""
    with db.read() as connection:
        return list(connection.execute(select(jobs).where(jobs.c.batch_id == batch_id).order_by(jobs.c.id)))


def count_rows(db: Database, table: Any) -> int:
    with db.read() as connection:
        return int(connection.execute(select(func.count()).select_from(table)).scalar_one())


def assert_texts_are_counted(connection: Connection) -> None:
    """Each job has the length of its text, and each batch that of the texts that are not done."""
    written = select(tickets.c.subject, tickets.c.body, jobs.c.text_bytes).join(jobs, jobs.c.id == tickets.c.job_id)
    for subject, body, text_bytes in connection.execute(written):
        assert text_bytes == len(f"{subject}{body}".encode())
    is_left = jobs.c.state.in_([JobState.PENDING.value, JobState.RUNNING.value])
    left = (
        select(func.coalesce(func.sum(jobs.c.text_bytes), 0))
        .where(jobs.c.batch_id == batches_table.c.id, is_left)
        .scalar_subquery()
    )
    for batch_id, kept, counted in connection.execute(
        select(batches_table.c.id, batches_table.c.text_bytes_left, left)
    ):
        assert kept == counted, f"bytes left of {batch_id}"


def assert_consistent(db: Database) -> None:
    """Counters are what a recount gives, a batch has ended exactly when its jobs have, and each row has its fellows."""
    with db.read() as connection:
        for batch in connection.execute(select(batches_table)):
            of_batch = jobs.c.batch_id == batch.id
            columns = [func.count(case((jobs.c.state == state.value, 1))).label(state.value) for state in JobState]
            counted = connection.execute(
                select(func.count().label("total"), func.count(case((jobs.c.reused, 1))).label("reused"), *columns)
                .select_from(jobs)
                .where(of_batch)
            ).one()
            kept = {name: getattr(batch, name) for name in counted._fields}
            assert kept == counted._asdict(), f"counters of {batch.id} ({batch.state})"
            has_ended = BatchState(batch.state).is_final
            if batch.state != BatchState.LOADING and batch.loader_token is None:
                assert has_ended == (batch.pending + batch.running == 0), f"{batch.id} is {batch.state}: {kept}"
            if counted.total:
                bounds = connection.execute(select(func.min(jobs.c.id), func.max(jobs.c.id)).where(of_batch)).one()
                assert (batch.first_job_id, batch.last_job_id) == tuple(bounds), f"id range of {batch.id}"
        assert_texts_are_counted(connection)
        answered = select(results.c.job_id).where(results.c.label.is_not(None))
        succeeded = select(jobs.c.id).where(jobs.c.state == JobState.SUCCEEDED.value)
        assert set(connection.execute(answered).scalars()) == set(connection.execute(succeeded).scalars())
        texts = set(connection.execute(select(tickets.c.job_id)).scalars())
        is_left = jobs.c.state.in_([JobState.PENDING.value, JobState.RUNNING.value])
        assert texts >= set(connection.execute(select(jobs.c.id).where(is_left)).scalars())
        if connection.execute(select(events.c.id).where(events.c.kind == "purged")).first() is None:
            assert texts == set(connection.execute(select(jobs.c.id)).scalars())
        tokens = attempts.c.prompt_tokens + attempts.c.completion_tokens
        spent = connection.execute(select(func.coalesce(func.sum(tokens), 0))).scalar_one()
        billed = batches_table.c.prompt_tokens + batches_table.c.completion_tokens
        assert connection.execute(select(func.coalesce(func.sum(billed), 0))).scalar_one() == spent
