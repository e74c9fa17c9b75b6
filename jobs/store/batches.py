"""Batches: what is shown of them, and which of them have work to give."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import date, datetime
from typing import Any

from sqlalchemy import ColumnElement, Row, Select, and_, literal, or_, select

from jobs.states import BatchState
from jobs.store.database import Database
from jobs.store.rest import LONGEST_REST, is_rested
from jobs.tables import IS_PENDING, Instant, batches, jobs, said
from tickets_batch.errors import UserError

NAMED = 5  # candidates named where a prefix fits several


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
    due = is_rested(literal(now, Instant()), literal(now + LONGEST_REST, Instant()))
    # one entry of the index: PostgreSQL makes of EXISTS a join with all that is pending, and of no order a scan
    first_due = (
        select(jobs.c.id)
        .where(jobs.c.batch_id == batches.c.id, IS_PENDING, due)
        .order_by(jobs.c.priority.desc(), jobs.c.requeues, jobs.c.id)
        .limit(1)
        .scalar_subquery()
    )
    query = _shown(BatchWork).where(*_gives(now), first_due.is_not(None)).order_by(*_in_order())
    with db.read() as connection:
        return [_work(row) for row in connection.execute(query)]


def ahead_of(db: Database, batch_id: str) -> list[BatchWork]:
    """The batches that are served before this one now, in the order of `runnable`; none once it has ended.

    Those that share a pool with it, that is. Among them may be one whose last jobs all rest before they are tried
    again. Raises StoreUnavailable.
    """
    is_itself = (batches.c.id == batch_id) & _is_open()
    query = _shown(BatchWork).where(or_(is_itself, and_(*_gives(db.now())))).order_by(*_in_order())
    with db.read() as connection:
        found = [_work(row) for row in connection.execute(query)]
    ids = [work.id for work in found]
    if batch_id not in ids:
        return []
    place = ids.index(batch_id)
    return [work for work in found[:place] if not set(work.pools).isdisjoint(found[place].pools)]


def open_work(db: Database) -> list[BatchWork]:
    """The batches that have not ended, in the order of `runnable`. Raises StoreUnavailable."""
    with db.read() as connection:
        return [_work(row) for row in connection.execute(_shown(BatchWork).where(_is_open()).order_by(*_in_order()))]


def unfinished(db: Database) -> list[str]:
    """The ids of the batches that have not ended, the nearest deadline first. Raises StoreUnavailable."""
    with db.read() as connection:
        return list(connection.execute(select(batches.c.id).where(_is_open()).order_by(*_in_order())).scalars())


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
