"""A few thousand tickets into a batch, in one transaction: what is new, what is there already, what has changed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from typing import Any

from sqlalchemy import (
    BigInteger,
    Connection,
    Integer,
    Row,
    Select,
    String,
    Text,
    Update,
    bindparam,
    delete,
    false,
    func,
    insert,
    null,
    select,
    update,
)

from jobs.states import BatchState, JobState
from jobs.store import bulk, events, loading, tally
from jobs.store.database import Database
from jobs.store.events import EventKind
from jobs.store.given import given, packed
from jobs.store.spool import Spooled
from jobs.tables import TEXT_LEFT, Values, batches, jobs, results, said, tickets

NAMED = 100  # ids named of those that changed
JOB_COLUMNS = (
    *("id", "batch_id", "custom_id", "answer_key", "priority", "text_bytes"),
    *("state", "reused", "truncated", "finished_at"),
)
TEXT_COLUMNS = ("job_id", "subject", "body")


@dataclass(frozen=True, slots=True)
class Load:
    """A batch and our right to put jobs into it; a batch that has ended takes the times and pools when it reopens."""

    batch_id: str
    token: str
    created: bool
    not_before: datetime | None
    deadline_at: datetime | None
    pools: tuple[str, ...]
    update: bool


@dataclass(slots=True)
class Put:
    """What has been put in so far."""

    added: int = 0
    reused: int = 0
    already: int = 0
    changed: int = 0
    updated: int = 0
    reopened: bool = False
    changed_ids: list[str] = field(default_factory=list)
    busy_ids: list[str] = field(default_factory=list)

    def __add__(self, more: "Put") -> "Put":
        return Put(
            self.added + more.added,
            self.reused + more.reused,
            self.already + more.already,
            self.changed + more.changed,
            self.updated + more.updated,
            self.reopened or more.reopened,
            (self.changed_ids + more.changed_ids)[:NAMED],
            (self.busy_ids + more.busy_ids)[:NAMED],
        )


def put(db: Database, load: Load, chunk: Sequence[Spooled]) -> Put:
    """Put these tickets in; counts what was done. Raises UserError when the lease is lost; StoreUnavailable."""
    now = db.now()
    with db.begin() as connection:
        there = {} if load.created else _there(connection, db.dialect, load, chunk)
        fresh = [ticket for ticket in chunk if ticket.custom_id not in there]
        changed = [t for t in chunk if t.custom_id in there and there[t.custom_id].answer_key != t.answer_key]
        done = Put(added=len(fresh), already=len(there), changed=len(changed))
        done.changed_ids = [ticket.custom_id for ticket in changed[:NAMED]]
        moved: dict[str, int] = {"total": len(fresh)}
        ids = _insert(connection, db.dialect, load, fresh, now, moved, done) if fresh else []
        if changed and load.update:
            _update(connection, db.dialect, changed, there, moved, done)
        batch = tally.add(connection, load.batch_id, moved)
        loading.keep(connection, batch, load.token, now)
        _stretch(connection, load, ids)
        if batch.pending and not load.created and _is_over(batch, now):
            _reopen(connection, batch, load, now)
            done.reopened = True
    return done


def _there(connection: Connection, dialect: str, load: Load, chunk: Sequence[Spooled]) -> dict[str, Row[Any]]:
    rows = packed(dialect, [{"custom_id": ticket.custom_id} for ticket in chunk])
    found = connection.execute(_find(dialect), {**rows, "batch": load.batch_id})
    return {row.custom_id: row for row in found}


def _insert(
    connection: Connection,
    dialect: str,
    load: Load,
    fresh: Sequence[Spooled],
    now: datetime,
    moved: dict[str, int],
    done: Put,
) -> list[int]:
    """New jobs: pending, or done where an earlier batch has the answer; returns their ids."""
    keys = packed(dialect, [{"answer_key": key} for key in {ticket.answer_key for ticket in fresh}])
    answers = {row.answer_key: row for row in connection.execute(_answers(dialect), {**keys, "batch": load.batch_id})}
    ids = bulk.take_job_ids(connection, len(fresh))
    numbered = list(zip(ids, fresh, strict=True))
    rows = (_job_row(load.batch_id, id_, ticket, answers.get(ticket.answer_key), now) for id_, ticket in numbered)
    bulk.insert_rows(connection, jobs, JOB_COLUMNS, rows)
    bulk.insert_rows(connection, tickets, TEXT_COLUMNS, ((id_, t.subject, t.body) for id_, t in numbered))
    reused = [_reused_row(id_, answers[t.answer_key]) for id_, t in numbered if t.answer_key in answers]
    if reused:
        connection.execute(insert(results), reused)
    done.reused = len(reused)
    moved |= {"reused": len(reused), JobState.SUCCEEDED: len(reused), JobState.PENDING: len(fresh) - len(reused)}
    moved[TEXT_LEFT] = sum(ticket.text_bytes for ticket in fresh if ticket.answer_key not in answers)
    return ids


def _update(
    connection: Connection,
    dialect: str,
    changed: Sequence[Spooled],
    there: Mapping[str, Row[Any]],
    moved: dict[str, int],
    done: Put,
) -> None:
    """Changed tickets: their jobs begin anew with the new text, but for those that are being worked on."""
    ids = [there[ticket.custom_id].id for ticket in changed]
    # in the order of ids, like every statement that waits for several jobs
    shown = (jobs.c.id, jobs.c.state, jobs.c.reused, jobs.c.text_bytes)
    locked = select(*shown).where(jobs.c.id.in_(ids)).order_by(jobs.c.id).with_for_update()
    held = {row.id: row for row in connection.execute(locked)}
    rows: list[Values] = []
    for ticket in changed:
        job = held[there[ticket.custom_id].id]
        if job.state == JobState.RUNNING:
            done.busy_ids.append(ticket.custom_id)
            continue
        rows.append({"id": job.id, "text_bytes": ticket.text_bytes, **ticket._asdict()})
        was_left = job.text_bytes if job.state == JobState.PENDING else 0
        for counter, more in (
            (job.state, -1),
            (JobState.PENDING, 1),
            ("reused", -int(job.reused)),
            (TEXT_LEFT, ticket.text_bytes - was_left),
        ):
            moved[counter] = moved.get(counter, 0) + more
    if rows:
        connection.execute(delete(results).where(results.c.job_id.in_([row["id"] for row in rows])))
        connection.execute(_renew_jobs(dialect), packed(dialect, rows))
        # the old text may have been purged
        connection.execute(delete(tickets).where(tickets.c.job_id.in_([row["id"] for row in rows])))
        texts = ((row["id"], row["subject"], row["body"]) for row in rows)
        bulk.insert_rows(connection, tickets, TEXT_COLUMNS, texts)
    done.updated = len(rows)


def _stretch(connection: Connection, load: Load, ids: Sequence[int]) -> None:
    """Keeps the range of the batch's job ids."""
    if ids:
        first = func.coalesce(batches.c.first_job_id, min(ids))
        connection.execute(
            update(batches).where(batches.c.id == load.batch_id).values(first_job_id=first, last_job_id=max(ids))
        )


def _is_over(batch: Row[Any], now: datetime) -> bool:
    """True when the batch has ended, or only waits for jobs in flight at its deadline."""
    is_late = batch.deadline_at is not None and batch.deadline_at <= now
    return is_late or batch.state in (BatchState.COMPLETED, BatchState.EXPIRED)


def _reopen(connection: Connection, batch: Row[Any], load: Load, now: datetime) -> None:
    is_paused = batch.state == BatchState.PAUSED
    connection.execute(
        update(batches)
        .where(batches.c.id == load.batch_id)
        .values(
            state=said(BatchState.PAUSED if is_paused else BatchState.RUNNING),
            finished_at=null(),
            not_before=load.not_before,
            deadline_at=load.deadline_at,
            pools=list(load.pools),
        )
    )
    events.add(connection, now, EventKind.REOPENED, load.batch_id)


def _job_row(batch_id: str, id_: int, ticket: Spooled, answer: Row[Any] | None, now: datetime) -> tuple[Any, ...]:
    """In the order of JOB_COLUMNS."""
    return (
        id_,
        batch_id,
        ticket.custom_id,
        ticket.answer_key,
        ticket.priority,
        ticket.text_bytes,
        (JobState.PENDING if answer is None else JobState.SUCCEEDED).value,
        answer is not None,
        answer is not None and answer.truncated,
        None if answer is None else now,
    )


def _reused_row(job_id: int, answer: Row[Any]) -> Values:
    return {
        "job_id": job_id,
        "label": answer.label,
        "model": answer.model,
        "prompt_tokens": 0,  # nothing was spent on it here
        "completion_tokens": 0,
    }


@cache
def _find(dialect: str) -> Select[Any]:
    asked = given(dialect, "asked", custom_id=Text())
    return select(jobs.c.id, jobs.c.custom_id, jobs.c.answer_key).join(
        asked, (jobs.c.custom_id == asked.c.custom_id) & (jobs.c.batch_id == bindparam("batch"))
    )


@cache
def _answers(dialect: str) -> Select[Any]:
    """One answer for each given key, from another batch."""
    asked = given(dialect, "asked", answer_key=String())
    found, source, other = results.alias("found"), jobs.alias("source"), jobs.alias("other")
    one = (
        select(found.c.job_id)
        .join(other, other.c.id == found.c.job_id)
        .where(found.c.answer_key == asked.c.answer_key, other.c.batch_id != bindparam("batch"))
        .limit(1)
        .correlate(asked)
        .scalar_subquery()
    )
    return (
        select(asked.c.answer_key, results.c.label, results.c.model, source.c.truncated)
        .select_from(asked)
        .join(results, results.c.job_id == one)
        .join(source, source.c.id == results.c.job_id)
    )


@cache
def _renew_jobs(dialect: str) -> Update:
    new = given(dialect, "new", id=BigInteger(), answer_key=String(), priority=Integer(), text_bytes=Integer())
    return (
        update(jobs)
        .where(jobs.c.id == new.c.id)
        .values(
            answer_key=new.c.answer_key,
            priority=new.c.priority,
            text_bytes=new.c.text_bytes,
            state=said(JobState.PENDING),
            attempts=0,
            reaps=0,
            requeues=jobs.c.requeues + 1,
            truncated=false(),
            reused=false(),
            not_before=null(),
            finished_at=null(),
            error=null(),
        )
    )
