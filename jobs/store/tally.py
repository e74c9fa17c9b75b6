"""The counters of a batch, moved in the transaction that moves its jobs, and the end of a batch that has none left.

Order of locks: first jobs, in the order of their ids, then batches, in the order of theirs. Whoever adds to a batch's
counters holds its row until the commit and so sees its true state: a `cancel` has either happened before, or waits.
"""

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, bindparam, null, update

from jobs.states import BatchState, JobState
from jobs.store import events
from jobs.store.events import EventKind
from jobs.tables import OTHER_COUNTERS, STATE_COUNTERS, TEXT_LEFT, batches, jobs, said

COUNTERS = ("total", *STATE_COUNTERS, *OTHER_COUNTERS, TEXT_LEFT)
OPEN = (BatchState.RUNNING, BatchState.PAUSED, BatchState.CANCELLING)

_NOTHING = {f"more_{name}": 0 for name in COUNTERS}
_SHOWN = (
    *("id", "state", "blocked", "probe_at", "probes", "probe_token", "not_before", "deadline_at", "started_at"),
    *("loader_token", "loader_expires_at"),
)
_ADD = (
    update(batches)
    .where(batches.c.id == bindparam("batch"))
    .values({name: batches.c[name] + bindparam(f"more_{name}") for name in COUNTERS})
    .returning(*(batches.c[name] for name in _SHOWN + COUNTERS))
)


def add(connection: Connection, batch_id: str, more: Mapping[str, int] | Mapping[JobState, int]) -> Row[Any]:
    """Add to the counters of a batch and lock its row; returns the row as it now is."""
    values = _NOTHING | {f"more_{name}": count for name, count in more.items()}
    return connection.execute(_ADD, {"batch": batch_id, **values}).one()


def settle(connection: Connection, row: Row[Any], returned: Collection[int], now: datetime, at_least: datetime) -> None:
    """End the jobs just `returned` to pending if their batch is ending, and the batch if it has none left."""
    becomes = ends(row, at_least)
    if returned and becomes:
        row = end(connection, row.id, returned, JobState.PENDING, becomes, now)
    close_if_done(connection, row, now)


def end(
    connection: Connection, batch_id: str, ids: Collection[int], was: JobState, becomes: JobState, now: datetime
) -> Row[Any]:
    """Give jobs, which the transaction holds and which are in the state `was`, a final state without a call."""
    ended = connection.execute(
        update(jobs)
        .where(jobs.c.id.in_(ids))
        .values(
            state=said(becomes),
            finished_at=now,
            error="deadline" if becomes is JobState.EXPIRED else null(),
            lease_token=null(),
            lease_expires_at=null(),
        )
        .returning(jobs.c.text_bytes)
    )
    return add(connection, batch_id, {was: -len(ids), becomes: len(ids), TEXT_LEFT: -sum(ended.scalars())})


def close_if_done(connection: Connection, row: Row[Any], now: datetime) -> bool:
    """End the batch if nothing of it is pending or running, unless jobs are being put in; True when it ended."""
    is_loading = row.loader_expires_at is not None and row.loader_expires_at > now
    if row.pending or row.running or row.state not in OPEN or is_loading:
        return False
    if row.state == BatchState.CANCELLING:
        state = BatchState.CANCELLED
    else:
        state = BatchState.EXPIRED if row.expired else BatchState.COMPLETED
    connection.execute(
        update(batches)
        .where(batches.c.id == row.id)
        .values(
            state=state.value,
            finished_at=now,
            blocked=null(),
            probe_at=null(),
            probe_token=null(),
            probes=0,
            loader_token=null(),
            loader_expires_at=null(),
        )
    )
    counts = {name: getattr(row, name) for name in ("total", "succeeded", "failed", "expired", "cancelled")}
    events.add(connection, now, EventKind(state), row.id, **counts)
    return True


def ends(row: Row[Any], at_least: datetime) -> JobState | None:
    """The state in which the jobs of a batch end that are pending when it is at least so late; None: they go on."""
    if row.state == BatchState.CANCELLING:
        return JobState.CANCELLED
    if row.state in OPEN and row.deadline_at is not None and row.deadline_at <= at_least:
        return JobState.EXPIRED
    return None
