"""Leases: a worker takes jobs, renews them while it holds them, and loses them when it dies.

Every claim has a fresh random token. A job is written to only under its token, so of two workers that both believe
they hold a job, one is told that it does not.
"""

import secrets
from collections.abc import Collection
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any

from sqlalchemy import Connection, Row, Select, and_, bindparam, null, select, update

from jobs.job import Job
from jobs.states import BatchState, JobState
from jobs.store import blocking, events, tally
from jobs.store.clock import SETTLING_SECONDS
from jobs.store.database import Database
from jobs.store.events import EventKind
from jobs.store.rest import LONGEST_REST, is_rested
from jobs.tables import IS_PENDING, TEXT_LEFT, Instant, Values, batches, jobs, said, tickets
from tickets_batch.words import counted

REAPS = 5  # a job whose workers have died this often ends: it may be what kills them
_IS_RUNNING = jobs.c.state == said(JobState.RUNNING)

_picked = (
    select(jobs.c.id)
    .where(
        jobs.c.batch_id == bindparam("batch"),
        IS_PENDING,
        is_rested(bindparam("now", type_=Instant), bindparam("latest", type_=Instant)),
    )
    .order_by(jobs.c.priority.desc(), jobs.c.requeues, jobs.c.id)
    .limit(bindparam("at_most"))
    .with_for_update(skip_locked=True)  # SQLite knows no row locks: BEGIN IMMEDIATE keeps the others out there
    .cte("picked")
)
_TAKE = (
    update(jobs)
    .where(jobs.c.id == _picked.c.id)
    .values(
        state=said(JobState.RUNNING),
        lease_token=bindparam("token"),
        lease_expires_at=bindparam("until", type_=Instant),
        worker=bindparam("by"),
        started_at=bindparam("now", type_=Instant),
    )
    .returning(
        jobs.c.id,
        jobs.c.custom_id,
        jobs.c.priority,
        jobs.c.attempts,
        jobs.c.requeues,
        jobs.c.yields,
        jobs.c.truncated,
    )
)


def claim(db: Database, batch_id: str, limit: int, worker: str, lease_seconds: float) -> list[Job]:
    """Take up to `limit` pending jobs of a running batch, the most urgent first, under one new lease.

    Order: higher priority, then fewer returns to pending, then age, so that retries never pass fresh work. Nothing is
    given before `not_before`, from the deadline on, or while the batch is blocked, but for one job when a probe is due.
    Raises StoreUnavailable.
    """
    now = db.now()
    with db.read() as connection:
        batch = connection.execute(select(batches).where(batches.c.id == batch_id)).one_or_none()
    if batch is None or not batch.pending or not _gives(batch, now):
        return []
    is_probe = batch.blocked is not None
    token = secrets.token_hex(16)
    asked = {"batch": batch_id, "at_most": 1 if is_probe else limit, "token": token, "by": worker}
    with db.begin() as connection:
        now = db.now()  # not before the lock was waited for: the lease would be over
        until = now + timedelta(seconds=lease_seconds)
        times = {"now": now, "latest": now + LONGEST_REST, "until": until}
        taken = connection.execute(_TAKE, {**asked, **times}).all()
        if not taken:
            return []
        moved = {JobState.PENDING: -len(taken), JobState.RUNNING: len(taken)}
        batch = tally.add(connection, batch_id, moved)
        if not _gives(batch, now) or (batch.blocked is not None) != is_probe:
            connection.rollback()  # paused, cancelled, blocked or probed since we looked
            return []
        if is_probe:
            blocking.start_probe(connection, batch, token, now)
        if batch.started_at is None:
            connection.execute(update(batches).where(batches.c.id == batch_id).values(started_at=now))
        texts = {ticket.job_id: ticket for ticket in connection.execute(_texts(job.id for job in taken))}
    return [
        Job(
            id=job.id,
            batch_id=batch_id,
            custom_id=job.custom_id,
            subject=texts[job.id].subject,
            body=texts[job.id].body,
            attempts=job.attempts,
            requeues=job.requeues,
            yields=job.yields,
            truncated=job.truncated,
            lease_token=token,
            lease_expires_at=until,
        )
        for job in sorted(taken, key=lambda job: (-job.priority, job.requeues, job.id))
    ]


def renew(db: Database, tokens: Collection[str], lease_seconds: float) -> set[int]:
    """Prolong the leases of these tokens; returns the ids of the jobs still held: any other has been lost.

    Raises StoreUnavailable.
    """
    if not tokens:
        return set()
    is_ours = jobs.c.lease_token.in_(list(tokens))
    # in the order of ids, like every statement that waits for several jobs: two that wait for each other deadlock
    ours = select(jobs.c.id).where(_IS_RUNNING, is_ours).order_by(jobs.c.id).with_for_update()
    renewal = update(jobs).where(jobs.c.id.in_(ours), _IS_RUNNING, is_ours).returning(jobs.c.id)
    with db.begin() as connection:
        until = db.now() + timedelta(seconds=lease_seconds)  # as in `claim`
        return set(connection.execute(renewal.values(lease_expires_at=until)).scalars())


def reap(db: Database, limit: int = 500, reaps: int = REAPS) -> int:
    """Take up to `limit` jobs back from workers whose lease has expired; returns how many.

    They have spent no attempt and go to the end of the queue; at the `reaps`-th time a job ends as
    `failed: worker_lost`. Nothing is taken while the database's clock settles after a step. Raises StoreUnavailable.
    """
    now = db.now()
    with db.read() as connection:  # mostly there is none, and then nothing is locked
        if connection.execute(_overdue(now, db.is_clock_known).limit(1)).first() is None:
            return 0
    now = db.reread()  # after a step back, who has read the clock before us renews into our past
    if not db.is_settled:
        return 0
    with db.begin() as connection:
        found = _overdue(now, db.is_clock_known).order_by(jobs.c.id).limit(limit).with_for_update(skip_locked=True)
        lost = sorted(connection.execute(found), key=lambda job: str(job.batch_id))
        for batch_id, group in groupby(lost, key=lambda job: str(job.batch_id)):
            _take_back(connection, batch_id, list(group), reaps, now)
    return len(lost)


def _overdue(now: datetime, is_clock_known: bool) -> Select[Any]:
    """Jobs whose lease is over; of a clock that is known, too those claimed long from now and not renewed since."""
    shown = (jobs.c.id, jobs.c.batch_id, jobs.c.lease_token, jobs.c.reaps, jobs.c.worker, jobs.c.text_bytes)
    is_over = jobs.c.lease_expires_at <= now
    if is_clock_known:
        long_from_now = now + timedelta(seconds=SETTLING_SECONDS)
        is_over |= and_(jobs.c.started_at > long_from_now, jobs.c.lease_expires_at > jobs.c.started_at)
    return select(*shown).where(_IS_RUNNING, is_over)


def _take_back(connection: Connection, batch_id: str, lost: list[Any], reaps: int, now: datetime) -> None:
    poison = {job.id: job.text_bytes for job in lost if job.reaps + 1 >= reaps}
    returned = [job.id for job in lost if job.reaps + 1 < reaps]
    free: Values = {"lease_token": null(), "lease_expires_at": null(), "reaps": jobs.c.reaps + 1}
    if returned:
        values = {**free, "state": said(JobState.PENDING), "requeues": jobs.c.requeues + 1}
        connection.execute(update(jobs).where(jobs.c.id.in_(returned)).values(values))
    if poison:
        error = f"worker_lost: {counted(reaps, 'worker')} died while they held it"
        values = {**free, "state": said(JobState.FAILED), "finished_at": now, "error": error}
        connection.execute(update(jobs).where(jobs.c.id.in_(poison)).values(values))
    moved: dict[str, int] = {
        JobState.RUNNING: -len(lost),
        JobState.PENDING: len(returned),
        JobState.FAILED: len(poison),
    }
    moved[TEXT_LEFT] = -sum(poison.values())
    batch = tally.add(connection, batch_id, moved)
    blocking.judge(connection, batch, {job.lease_token for job in lost}, why=None, works=False, now=now)
    workers = sorted({job.worker for job in lost})
    events.add(connection, now, EventKind.REAPED, batch_id, jobs=len(lost), failed=len(poison), workers=workers)
    tally.settle(connection, batch, returned, now, at_least=now)  # nothing is reaped while the clock settles


def _gives(batch: Row[Any], now: datetime) -> bool:
    """True while a batch gives out jobs."""
    return (
        batch.state == BatchState.RUNNING
        and (batch.not_before is None or batch.not_before <= now)
        and (batch.deadline_at is None or batch.deadline_at > now)
        and (batch.blocked is None or batch.probe_at <= now)
    )


def _texts(ids: Any) -> Any:
    return select(tickets).where(tickets.c.job_id.in_(list(ids)))
