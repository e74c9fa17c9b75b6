"""The moves that a person or the scheduler makes with a batch.

Every move is one conditional UPDATE; what concerns many jobs follows in chunks, so that a million jobs never hold a
lock for long, and is taken up again by the next caller when a process is killed between two of them.
"""

import time
from datetime import datetime

from sqlalchemy import Connection, delete, null, or_, select, update

from jobs.states import BatchState, JobState
from jobs.store import events, loading, tally, texts
from jobs.store.database import Database
from jobs.store.events import EventKind
from jobs.tables import IS_PENDING, TEXT_LEFT, Values, batches, jobs, results, said
from tickets_batch.errors import UserError

CHUNK = 2_000  # jobs to a transaction


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
        again: Values = {"probe_at": now} if row.blocked else {}  # what blocks it may well have been mended
        connection.execute(
            update(batches)
            .where(batches.c.id == batch_id)
            .values(state=state, finished_at=null(), deadline_at=deadline_at, **again)
        )
        events.add(connection, now, EventKind.RETRIED, batch_id, failed=row.failed, expired=row.expired)
    returned, last_id = 0, 0
    while ids := _return_chunk(db, batch_id, token, last_id):
        returned += len(ids)
        last_id = ids[-1]
    loading.release(db, batch_id, token)
    return returned


def _return_chunk(db: Database, batch_id: str, token: str, last_id: int) -> list[int]:
    """Return the next ones behind `last_id`; each only once, so that what fails anew meanwhile does not come again."""
    chunk = (
        select(jobs.c.id, jobs.c.state, jobs.c.text_bytes)
        .where(
            jobs.c.batch_id == batch_id,
            jobs.c.state.in_([said(JobState.FAILED), said(JobState.EXPIRED)]),
            texts.HAS_TEXT,
            jobs.c.id > last_id,
        )
        .order_by(jobs.c.id)
        .limit(CHUNK)
        .with_for_update()
    )
    now = db.now()
    with db.begin() as connection:
        found = connection.execute(chunk).all()
        if not found:
            return []
        ids = [int(job.id) for job in found]
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
    return ids


def _end_pending(db: Database, batch_id: str, becomes: JobState) -> int:
    """Expires or cancels what is pending, in chunks, as long as the batch is to end that way; returns how many."""
    chunk = (
        select(jobs.c.id)
        .where(jobs.c.batch_id == batch_id, IS_PENDING)
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
