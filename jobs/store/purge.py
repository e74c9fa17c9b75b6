"""Retention: the text of tickets leaves batches that have ended; ids, labels, counts and costs stay.

Text is in `tickets`; the model's own words, what engines said of errors and why rows could not be used may quote it,
and go with it. The hash of a ticket stays, so the same source is still the same batch.

A purge works through a batch in short transactions under the right to put jobs in, which it yields to whoever wants
it: a submit or a retry that comes meanwhile goes first, and the rest is for the next purge.
"""

import secrets
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, delete, exists, func, null, select, update

from jobs.states import BatchState
from jobs.store import events, loading, tally
from jobs.store.database import Database
from jobs.store.events import EventKind
from jobs.tables import attempts, batches, jobs, rejections, results, said, tickets
from jobs.tables import events as events_table

CHUNK = 1_000  # ids of jobs to a transaction
CHECKPOINT_SECONDS = 2.0
KINDS_THAT_QUOTE = (EventKind.BLOCKED, EventKind.UNBLOCKED)  # events that carry what an engine said

_HAS_ENDED = batches.c.state.in_([said(state) for state in BatchState if state.is_final])


@dataclass(frozen=True, slots=True)
class Purged:
    """What was removed of one batch, or is to be.

    `texts` counts the tickets whose subject and body went (`text_bytes`: their length in UTF-8), `answers` what the
    model said where it was no label, `details` what is more than a word of an error, `rejections` the reasons for which
    rows of the source could not be used. `is_whole` is False where a submit or a retry came first.
    """

    batch_id: str
    texts: int = 0
    text_bytes: int = 0
    answers: int = 0
    details: int = 0
    rejections: int = 0
    is_whole: bool = True

    @property
    def is_nothing(self) -> bool:
        """Whether there was no text."""
        return not (self.texts or self.answers or self.details or self.rejections)


class _GivenWay(Exception):
    """Somebody else may put jobs into the batch now."""


def due(db: Database, before: datetime) -> list[str]:
    """The batches that ended before this instant and may hold text, the oldest first. Raises StoreUnavailable."""
    query = select(batches.c.id).where(*_is_due(before)).order_by(batches.c.finished_at, batches.c.id)
    with db.read() as connection:
        return list(connection.execute(query).scalars())


def left_open(db: Database, before: datetime) -> list[str]:
    """The batches made before this instant that have not ended: no purge touches them. Raises StoreUnavailable."""
    query = select(batches.c.id).where(~_HAS_ENDED, batches.c.created_at < before).order_by(batches.c.created_at)
    with db.read() as connection:
        return list(connection.execute(query).scalars())


def purge_ended(db: Database, older_than: timedelta) -> Iterator[Purged]:
    """Purge every batch that ended longer ago than this, each as it is asked for. Raises StoreUnavailable."""
    before = db.now() - older_than
    ids = due(db, before)
    try:
        for batch_id in ids:
            if purged := purge(db, batch_id, before):
                yield purged
    finally:
        if ids:
            _empty_log(db)


def purge(db: Database, batch_id: str, before: datetime) -> Purged | None:
    """Remove the text of one batch; None where it is not due (any more), or another purge is at it.

    Raises StoreUnavailable; what was removed by then stays removed, and the next purge goes on.
    """
    taken = _take(db, batch_id, before)
    if taken is None:
        return None
    token, bounds = taken
    done = Purged(batch_id)
    try:
        for first in bounds[::CHUNK]:
            began = time.monotonic()
            found = _purge_chunk(db, batch_id, token, first)
            done = _sum(done, found)
            if found:  # SQLite has one writer at a time and no queue of them: leave the others as long as we took
                time.sleep(time.monotonic() - began)
        return _complete(db, token, done)
    except _GivenWay:
        done = replace(done, is_whole=False)
        if not done.is_nothing:
            events.record(db, EventKind.PURGED, batch_id, **_counts(done))
        return done


def foresee(db: Database, batch_id: str) -> Purged:
    """What a purge of this batch would remove. Raises StoreUnavailable."""
    with db.read() as connection:
        bounds = _bounds(connection.execute(select(batches).where(batches.c.id == batch_id)).one())
        ours = [jobs.c.batch_id == batch_id, jobs.c.id.between(bounds.start, bounds.stop - 1)]
        texts = select(func.count(), func.coalesce(func.sum(jobs.c.text_bytes), 0)).where(
            *ours, exists().where(tickets.c.job_id == jobs.c.id)
        )
        count, text_bytes = connection.execute(texts).one()
        answers = (
            select(func.count()).join(jobs, jobs.c.id == results.c.job_id).where(*ours, results.c.raw.is_not(None))
        )
        errors = select(func.count()).select_from(jobs).where(*ours, jobs.c.error.contains(":"))
        details = select(func.count()).join(jobs, jobs.c.id == attempts.c.job_id).where(*ours, attempts.c.detail != "")
        rejected = select(func.count()).where(rejections.c.batch_id == batch_id)
        numbers = [int(connection.execute(query).scalar_one()) for query in (answers, errors, details, rejected)]
    return Purged(batch_id, int(count), int(text_bytes), numbers[0], numbers[1] + numbers[2], numbers[3])


def _is_due(before: datetime) -> tuple[ColumnElement[bool], ...]:
    return (_HAS_ENDED, batches.c.finished_at < before, batches.c.purged_at.is_(None))


def _take(db: Database, batch_id: str, before: datetime) -> tuple[str, range] | None:
    """The right to put jobs in, so that nobody does unnoticed, and the ids to go through."""
    now, token = db.now(), secrets.token_hex(16)
    with db.begin() as connection:
        query = select(batches).where(batches.c.id == batch_id, *_is_due(before)).with_for_update()
        row = connection.execute(query).one_or_none()
        if row is None or loading.is_leased(row, now):
            return None
        values = loading.lease(token, now, gives_way=True)
        connection.execute(update(batches).where(batches.c.id == batch_id).values(values))
        return token, _bounds(row)


def _bounds(row: Row[Any]) -> range:
    return range(0) if row.first_job_id is None else range(row.first_job_id, row.last_job_id + 1)


def _purge_chunk(db: Database, batch_id: str, token: str, first: int) -> Purged | None:
    """The batch's jobs among the next ids; None where there are none. Raises _GivenWay, with nothing changed."""
    in_chunk = (jobs.c.batch_id == batch_id, jobs.c.id.between(first, first + CHUNK - 1))
    with db.read() as connection:
        if connection.execute(select(jobs.c.id).where(*in_chunk).limit(1)).first() is None:
            return None
    # in the order of ids, like every statement that waits for several jobs, and the batch after them
    shown = select(jobs.c.id, jobs.c.text_bytes, jobs.c.error).where(*in_chunk).order_by(jobs.c.id).with_for_update()
    now = db.now()
    with db.begin() as connection:
        _overwrite(connection)
        found = {row.id: row for row in connection.execute(shown)}
        ids = list(found)
        without = delete(tickets).where(tickets.c.job_id.in_(ids)).returning(tickets.c.job_id)
        gone = list(connection.execute(without).scalars())
        said_nothing = update(results).where(results.c.job_id.in_(ids), results.c.raw.is_not(None)).values(raw=null())
        plain = update(attempts).where(attempts.c.job_id.in_(ids), attempts.c.detail != "").values(detail="")
        purged = Purged(
            batch_id,
            texts=len(gone),
            text_bytes=sum(found[job_id].text_bytes for job_id in gone),
            answers=connection.execute(said_nothing).rowcount,
            details=connection.execute(plain).rowcount + _cut_errors(connection, found.values()),
        )
        _keep(connection, batch_id, token, now)
    return purged


def _cut_errors(connection: Connection, rows: Iterable[Any]) -> int:
    """Of each error the word by which it is counted stays."""
    by_word: dict[str, list[int]] = {}
    for row in rows:
        word, colon, _ = (row.error or "").partition(":")
        if colon:
            by_word.setdefault(word, []).append(row.id)
    for word, ids in by_word.items():
        connection.execute(update(jobs).where(jobs.c.id.in_(ids)).values(error=word))
    return sum(map(len, by_word.values()))


def _complete(db: Database, token: str, done: Purged) -> Purged:
    """The last transaction: what belongs to the batch as a whole, and the note that it is done."""
    now, batch_id = db.now(), done.batch_id
    with db.begin() as connection:
        _overwrite(connection)
        gone = connection.execute(delete(rejections).where(rejections.c.batch_id == batch_id)).rowcount
        done = replace(done, rejections=gone)
        _cut_events(connection, batch_id)
        _keep(connection, batch_id, token, now)
        free = {"loader_token": null(), "loader_expires_at": null(), "loader": null()}
        connection.execute(update(batches).where(batches.c.id == batch_id).values(**free, purged_at=now))
        if not done.is_nothing:
            events.add(connection, now, EventKind.PURGED, batch_id, **_counts(done))
    return done


def _cut_events(connection: Connection, batch_id: str) -> None:
    """What an engine said stands in brackets behind our own words."""
    columns = (events_table.c.id, events_table.c.detail)
    ours = (events_table.c.batch_id == batch_id, events_table.c.kind.in_(KINDS_THAT_QUOTE))
    for event in connection.execute(select(*columns).where(*ours)).all():
        detail: Mapping[str, Any] = event.detail
        cut = {key: value.partition(" (")[0] if isinstance(value, str) else value for key, value in detail.items()}
        if cut != detail:
            connection.execute(update(events_table).where(events_table.c.id == event.id).values(detail=cut))


def _keep(connection: Connection, batch_id: str, token: str, now: datetime) -> None:
    """Locks the batch and prolongs our right. Raises _GivenWay, which rolls the transaction back."""
    row = tally.add(connection, batch_id, {})
    if row.loader_token != token:
        raise _GivenWay
    loading.keep(connection, row, token, now)


def _sum(done: Purged, more: Purged | None) -> Purged:
    if more is None:
        return done
    names = ("texts", "text_bytes", "answers", "details")
    return replace(done, **{name: getattr(done, name) + getattr(more, name) for name in names})


def _counts(done: Purged) -> dict[str, Any]:
    return {name: getattr(done, name) for name in ("texts", "answers", "details", "rejections")}


def _overwrite(connection: Connection) -> None:
    """SQLite leaves what is deleted in its file until the place is used again, unless it is told to."""
    if connection.dialect.name == "sqlite":
        connection.exec_driver_sql("PRAGMA secure_delete = ON")


def _empty_log(db: Database) -> None:
    """What was deleted stands in SQLite's write-ahead log until that is emptied; later, where somebody reads now."""
    if db.dialect == "sqlite" and db.url.database:
        with closing(sqlite3.connect(db.url.database, timeout=CHECKPOINT_SECONDS)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").close()
