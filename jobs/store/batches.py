"""Batches: what is shown of them, and the moves a person or the scheduler makes.

Every move is one conditional UPDATE; what concerns many jobs follows in chunks, so that a million jobs never hold a
lock for long, and is taken up again by the next caller when a process is killed between two of them.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import date, datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Select, and_, delete, null, or_, select, update

from jobs.states import BatchState, JobState
from jobs.store import events, loading, tally, texts
from jobs.store.database import Database
from jobs.store.events import EventKind
from jobs.tables import TEXT_LEFT, Values, batches, jobs, results, said
from tickets_batch.errors import UserError

CHUNK = 2_000  # jobs to a transaction
NAMED = 5  # candidates named where a prefix fits several

_IS_PENDING = jobs.c.state == said(JobState.PENDING)


@dataclass(frozen=True, slots=True)
class Batch:
    """One batch as a reader sees it; `pending` to `cancelled` add up to `total`, `reused` are among the succeeded.

    `prompt_tokens` and `completion_tokens` count every attempt, `wasted_tokens` those of attempts withdrawn before
    their answer. `text_bytes_left` is the length, in UTF-8, of the tickets that are pending or running.
    """

    id: str
    date: date | None
    zone: str
    source: str
    sequence: int
    spec_hash: str
    model: str
    pools: tuple[str, ...]
    state: BatchState
    blocked: str | None
    probe_at: datetime | None
    created_at: datetime
    not_before: datetime | None
    deadline_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    total: int
    pending: int
    running: int
    succeeded: int
    failed: int
    expired: int
    cancelled: int
    reused: int
    rejected: int
    yields: int
    withdrawn: int
    prompt_tokens: int
    completion_tokens: int
    wasted_tokens: int
    text_bytes_left: int


@dataclass(frozen=True, slots=True)
class BatchWork:
    """A batch as those see it who work on it; `spec` is what was submitted, the order of its keys kept.

    The counters mean what they mean in `Batch`.
    """

    id: str
    state: BatchState
    blocked: str | None
    spec: Mapping[str, Any]
    model: str
    pools: tuple[str, ...]
    not_before: datetime | None
    deadline_at: datetime | None
    created_at: datetime
    started_at: datetime | None
    total: int
    pending: int
    running: int
    succeeded: int
    failed: int
    expired: int
    cancelled: int
    reused: int
    prompt_tokens: int
    completion_tokens: int
    wasted_tokens: int
    text_bytes_left: int

    def is_waiting(self, now: datetime) -> bool:
        """Whether it runs, but its time has not come."""
        return self.state is BatchState.RUNNING and self.not_before is not None and self.not_before > now

    def is_at_work(self, now: datetime) -> bool:
        """Whether its jobs are to be done now: it runs, its time has come, nothing blocks it, and some are left."""
        is_over = self.deadline_at is not None and self.deadline_at <= now
        can_go_on = self.state is BatchState.RUNNING and not self.is_waiting(now) and not is_over
        return can_go_on and self.blocked is None and self.pending + self.running > 0

    @property
    def done(self) -> int:
        """The jobs that the model has answered or that failed; not those reused from an earlier batch."""
        return self.succeeded + self.failed - self.reused


def get(db: Database, batch_id: str) -> Batch:
    """The batch of this id. Raises UserError when there is none; StoreUnavailable."""
    with db.read() as connection:
        row = connection.execute(_shown(Batch).where(batches.c.id == batch_id)).one_or_none()
    if row is None:
        raise UserError(f"there is no batch {batch_id}: tickets-batch status lists them")
    return _batch(row)


def newest_first(db: Database, limit: int = 50) -> list[Batch]:
    """The last `limit` batches. Raises StoreUnavailable."""
    with db.read() as connection:
        return [_batch(row) for row in connection.execute(_newest(_shown(Batch)).limit(limit))]


def ended_since(db: Database, instant: datetime) -> list[Batch]:
    """The batches that have ended at that instant or later, in the order of their ends. Raises StoreUnavailable."""
    ended = _shown(Batch).where(batches.c.finished_at >= instant).order_by(batches.c.finished_at, batches.c.id)
    with db.read() as connection:
        return [_batch(row) for row in connection.execute(ended)]


def resolve(db: Database, text: str) -> str:
    """The id that a person means: an id, the beginning of exactly one (`batch_` may be left out), or `latest`.

    Raises UserError when it fits none or several; StoreUnavailable.
    """
    ids = _newest(select(batches.c.id))
    with db.read() as connection:
        if text == "latest":
            fits = list(connection.execute(ids.limit(1)).scalars())
        elif connection.execute(ids.where(batches.c.id == text)).first():
            return text
        else:
            begins = or_(
                batches.c.id.startswith(text, autoescape=True),
                batches.c.id.startswith(f"batch_{text}", autoescape=True),
            )
            fits = list(connection.execute(ids.where(begins).limit(NAMED + 1)).scalars()) if text else []
    if len(fits) == 1:
        return str(fits[0])
    if not fits:
        what = "there is no batch yet" if text == "latest" else f"no batch begins with {text!r}"
        raise UserError(f"{what}: tickets-batch status lists them")
    more = ", ..." if len(fits) > NAMED else ""
    raise UserError(f"{text!r} fits several batches ({', '.join(fits[:NAMED])}{more}): write more of the id")


def work(db: Database, batch_id: str) -> BatchWork:
    """What a worker needs to know of a batch. Raises UserError when there is none; StoreUnavailable."""
    with db.read() as connection:
        row = connection.execute(_shown(BatchWork).where(batches.c.id == batch_id)).one_or_none()
    if row is None:
        raise UserError(f"there is no batch {batch_id}: tickets-batch status lists them")
    return _work(row)


def runnable(db: Database) -> list[BatchWork]:
    """The batches with jobs to claim now, the nearest deadline first; a blocked one when its probe is due.

    Raises StoreUnavailable.
    """
    now = db.now()
    due = or_(jobs.c.not_before.is_(None), jobs.c.not_before <= now)
    # one entry of the index: PostgreSQL makes of EXISTS a join with all that is pending, and of no order a scan
    first_due = (
        select(jobs.c.id)
        .where(jobs.c.batch_id == batches.c.id, _IS_PENDING, due)
        .order_by(jobs.c.priority.desc(), jobs.c.requeues, jobs.c.id)
        .limit(1)
        .scalar_subquery()
    )
    query = _shown(BatchWork).where(*_gives(now), first_due.is_not(None)).order_by(*_in_order())
    with db.read() as connection:
        return [_work(row) for row in connection.execute(query)]


def ahead_of(db: Database, batch_id: str) -> list[BatchWork]:
    """The batches that are served before this one now, in the order of `runnable`; none once it has ended.

    Among them may be one whose last jobs all rest before they are tried again. Raises StoreUnavailable.
    """
    is_itself = (batches.c.id == batch_id) & _is_open()
    query = _shown(BatchWork).where(or_(is_itself, and_(*_gives(db.now())))).order_by(*_in_order())
    with db.read() as connection:
        found = [_work(row) for row in connection.execute(query)]
    ids = [work.id for work in found]
    return found[: ids.index(batch_id)] if batch_id in ids else []


def open_work(db: Database) -> list[BatchWork]:
    """The batches that have not ended, in the order of `runnable`. Raises StoreUnavailable."""
    with db.read() as connection:
        return [_work(row) for row in connection.execute(_shown(BatchWork).where(_is_open()).order_by(*_in_order()))]


def unfinished(db: Database) -> list[str]:
    """The ids of the batches that have not ended, the nearest deadline first. Raises StoreUnavailable."""
    with db.read() as connection:
        return list(connection.execute(select(batches.c.id).where(_is_open()).order_by(*_in_order())).scalars())


def pause(db: Database, batch_id: str) -> None:
    """Give out no more jobs; those in flight are finished, those claimed and not begun go back.

    Raises UserError unless the batch is running; StoreUnavailable.
    """
    _move(db, batch_id, "pause", (BatchState.RUNNING,), BatchState.PAUSED)


def resume(db: Database, batch_id: str) -> None:
    """Give out jobs again. Raises UserError unless the batch is paused; StoreUnavailable."""
    _move(db, batch_id, "resume", (BatchState.PAUSED,), BatchState.RUNNING)


def cancel(db: Database, batch_id: str) -> None:
    """Cancel every job that is not running; those in flight are withdrawn by their workers, and the last one closes it.

    Of a batch still being loaded, its submit stops. Raises UserError when the batch has ended; StoreUnavailable.
    """
    movable = (BatchState.LOADING, BatchState.RUNNING, BatchState.PAUSED, BatchState.CANCELLING)
    _move(db, batch_id, "cancel", movable, BatchState.CANCELLING)
    _end_pending(db, batch_id, JobState.CANCELLED)


def expire_overdue(db: Database) -> int:
    """Expire the pending jobs of batches past their deadline; returns how many.

    Jobs in flight are left to their workers, who know the deadline, or to the reaper. Ends, too, what a killed `cancel`
    or `submit` has left open. Raises StoreUnavailable.
    """
    now, at_least = db.now(), db.at_least()
    is_open = batches.c.state.in_([said(BatchState.RUNNING), said(BatchState.PAUSED)])
    is_cancelling = batches.c.state == said(BatchState.CANCELLING)
    overdue = select(batches.c.id).where(is_open, batches.c.pending > 0, batches.c.deadline_at <= at_least)
    half_cancelled = select(batches.c.id).where(is_cancelling, batches.c.pending > 0)
    idle = select(batches.c.id).where(
        or_(is_open, is_cancelling),
        batches.c.pending + batches.c.running == 0,
        or_(batches.c.loader_expires_at.is_(None), batches.c.loader_expires_at <= now),
    )
    with db.read() as connection:
        lists = [list(connection.execute(query).scalars()) for query in (overdue, half_cancelled, idle)]
    expired = sum(_end_pending(db, batch_id, JobState.EXPIRED) for batch_id in lists[0])
    for batch_id in lists[1]:
        _end_pending(db, batch_id, JobState.CANCELLED)
    for batch_id in lists[2]:
        close_if_done(db, batch_id)
    return expired


def close_if_done(db: Database, batch_id: str) -> bool:
    """End the batch if nothing of it is pending or running; True when this call has ended it.

    Raises StoreUnavailable.
    """
    now = db.now()
    with db.begin() as connection:
        return tally.close_if_done(connection, tally.add(connection, batch_id, {}), now)


def retry(db: Database, batch_id: str, deadline_at: datetime | None) -> int:
    """Make the failed and expired jobs pending again, with all their attempts, under a new deadline; returns how many.

    A batch that has ended runs again; what succeeded stays. Each job's failed attempts stay on record, its failed
    result goes. Jobs whose text was purged stay as they are. Raises UserError for a cancelled batch (its end was asked
    for), one still loading, and where nothing has failed or expired, or all of it without text; StoreUnavailable.
    """
    now = db.now()
    retriable = (BatchState.RUNNING, BatchState.PAUSED, BatchState.COMPLETED, BatchState.EXPIRED)
    with db.begin() as connection:
        row = connection.execute(select(batches).where(batches.c.id == batch_id).with_for_update()).one_or_none()
        if row is None or row.state not in retriable:
            raise _illegal(connection, batch_id, "retry")
        if not row.failed + row.expired:
            raise UserError(f"batch {batch_id} has no failed or expired jobs: nothing to retry")
        texts.require(connection, row)
        token = loading.take(connection, row, now)
        state = row.state if row.state == BatchState.PAUSED else BatchState.RUNNING.value
        connection.execute(
            update(batches)
            .where(batches.c.id == batch_id)
            .values(state=state, finished_at=null(), deadline_at=deadline_at)
        )
        events.add(connection, now, EventKind.RETRIED, batch_id, failed=row.failed, expired=row.expired)
    returned = 0
    while count := _return_chunk(db, batch_id, token, now):
        returned += count
    loading.release(db, batch_id, token)
    return returned


def _return_chunk(db: Database, batch_id: str, token: str, asked_at: datetime) -> int:
    chunk = (
        select(jobs.c.id, jobs.c.state, jobs.c.text_bytes)
        .where(
            jobs.c.batch_id == batch_id,
            jobs.c.state.in_([said(JobState.FAILED), said(JobState.EXPIRED)]),
            texts.HAS_TEXT,
            jobs.c.finished_at <= asked_at,  # not those that fail anew meanwhile
        )
        .order_by(jobs.c.id)
        .limit(CHUNK)
        .with_for_update()
    )
    now = db.now()
    with db.begin() as connection:
        found = connection.execute(chunk).all()
        if not found:
            return 0
        ids = [job.id for job in found]
        again = {
            "state": said(JobState.PENDING),
            "attempts": 0,
            "reaps": 0,
            "requeues": jobs.c.requeues + 1,
            "not_before": null(),
            "finished_at": null(),
            "error": null(),
        }
        connection.execute(delete(results).where(results.c.job_id.in_(ids)))
        connection.execute(update(jobs).where(jobs.c.id.in_(ids)).values(again))
        failed = sum(job.state == JobState.FAILED for job in found)
        moved: dict[str, int] = {
            JobState.PENDING: len(ids),
            JobState.FAILED: -failed,
            JobState.EXPIRED: failed - len(ids),
        }
        moved[TEXT_LEFT] = sum(job.text_bytes for job in found)
        loading.keep(connection, tally.add(connection, batch_id, moved), token, now)
    return len(ids)


def _end_pending(db: Database, batch_id: str, becomes: JobState) -> int:
    """Expires or cancels what is pending, in chunks, as long as the batch is to end that way; returns how many."""
    chunk = (
        select(jobs.c.id)
        .where(jobs.c.batch_id == batch_id, _IS_PENDING)
        .order_by(jobs.c.priority.desc(), jobs.c.requeues, jobs.c.id)
        .limit(CHUNK)
        .with_for_update(skip_locked=True)
    )
    ended = 0
    while True:
        now, at_least = db.now(), db.at_least()
        with db.begin() as connection:
            ids = list(connection.execute(chunk).scalars())
            if ids:
                batch = tally.end(connection, batch_id, ids, JobState.PENDING, becomes, now)
            else:
                batch = tally.add(connection, batch_id, {})
            if tally.ends(batch, at_least) is not becomes:
                connection.rollback()  # retried with a new deadline since, or already closed
                return ended
            tally.close_if_done(connection, batch, now)
        ended += len(ids)
        if not batch.pending:
            return ended
        if not ids:  # the rest is in the hands of claims that have not committed
            time.sleep(0.02)


def _move(db: Database, batch_id: str, verb: str, movable: tuple[BatchState, ...], becomes: BatchState) -> None:
    now = db.now()
    values: Values = {"state": becomes.value}
    if becomes is BatchState.CANCELLING:
        values |= {"loader_token": null(), "loader_expires_at": null()}  # a submit at work on it finds that it lost it
    with db.begin() as connection:
        changed = connection.execute(
            update(batches)
            .where(batches.c.id == batch_id, batches.c.state.in_([state.value for state in movable]))
            .values(values)
        ).rowcount
        if not changed:
            raise _illegal(connection, batch_id, verb)
        events.add(connection, now, EventKind(becomes), batch_id)


def _illegal(connection: Connection, batch_id: str, verb: str) -> UserError:
    state = connection.execute(select(batches.c.state).where(batches.c.id == batch_id)).scalar()
    if state is None:
        return UserError(f"there is no batch {batch_id}: tickets-batch status lists them")
    return UserError(f"batch {batch_id} is {state}: nothing to {verb}")


def _shown(view: type[Batch] | type[BatchWork]) -> Select[Any]:
    return select(*(batches.c[field.name] for field in fields(view)))


def _is_open() -> ColumnElement[bool]:
    return batches.c.state.in_([said(state) for state in BatchState if not state.is_final])


def _gives(now: datetime) -> tuple[ColumnElement[bool], ...]:
    return (
        batches.c.state == said(BatchState.RUNNING),
        batches.c.pending > 0,
        or_(batches.c.not_before.is_(None), batches.c.not_before <= now),
        or_(batches.c.deadline_at.is_(None), batches.c.deadline_at > now),
        or_(batches.c.blocked.is_(None), batches.c.probe_at <= now),
    )


def _in_order() -> tuple[ColumnElement[Any], ...]:
    """The nearest deadline first."""
    return (batches.c.deadline_at.is_(None), batches.c.deadline_at, batches.c.created_at, batches.c.id)


def _newest(query: Select[Any]) -> Select[Any]:
    return query.order_by(batches.c.created_at.desc(), batches.c.id.desc())


def _batch(row: Row[Any]) -> Batch:
    return Batch(**{**row._mapping, "state": BatchState(row.state), "pools": tuple(row.pools)})


def _work(row: Row[Any]) -> BatchWork:
    return BatchWork(**{**row._mapping, "state": BatchState(row.state), "pools": tuple(row.pools)})
