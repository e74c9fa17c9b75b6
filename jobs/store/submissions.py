"""Submitting: a source becomes a batch, or tops one up.

The same source, date, spec and model are the same batch. The source is read to its end first; its tickets then go in by
chunks. A new batch stands in the state `loading` until its last one: a load that was killed is thrown away and begun
again by the next submit. A top-up of more than one chunk gives out the jobs of each as it goes in; killed half-way, it
is completed by the next submit, which finds what is there. While one submit loads a batch, a second is refused.
"""

import secrets
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

from sqlalchemy import Connection, Row, delete, insert, null, select, update
from sqlalchemy.exc import IntegrityError

from jobs.spec_difference import differences
from jobs.states import BatchState, JobState
from jobs.store import chunks, events, loading, tally
from jobs.store.chunks import Load, Put
from jobs.store.database import Database
from jobs.store.events import EventKind
from jobs.store.moves import expire_overdue
from jobs.store.spool import Spool
from jobs.tables import TEXT_LEFT, Values, batches, jobs, rejections
from jobs.ticket import Rejection, Ticket
from tickets_batch.errors import UserError
from tickets_batch.words import counted

CHUNK = 2_000  # tickets to a transaction
DISCARDED = 5_000
ID_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"


@dataclass(frozen=True, slots=True)
class SubmitRequest:
    """What is submitted: `source_key` names the source for ever, `source` describes it to a person.

    `date` is the business day in `zone`, None for every row. `update` takes tickets whose text has changed, `new` makes
    another batch of the same source and date, `allow_empty` one without tickets. `not_before` and `deadline_at` hold
    for a new batch, one that is opened again and one past its deadline; any other keeps its own.
    """

    source_key: str
    source: str
    date: date | None
    zone: str
    spec: Mapping[str, Any]
    spec_hash: str
    model: str
    pools: tuple[str, ...]
    not_before: datetime | None = None
    deadline_at: datetime | None = None
    update: bool = False
    new: bool = False
    allow_empty: bool = False


@dataclass(frozen=True, slots=True)
class Submission:
    """What a submit did. Of `added` jobs `reused` were answered from an earlier batch; `already` were there before.

    `changed` tickets have another text than the batch (`changed_ids`: the first hundred); of these `updated` were
    taken, and `busy_ids` could not be: they are being worked on. `rejections` are the first ten thousand of `rejected`.
    """

    batch_id: str
    created: bool
    reopened: bool
    added: int
    reused: int
    already: int
    changed: int
    changed_ids: tuple[str, ...]
    updated: int
    busy_ids: tuple[str, ...]
    rejected: int
    rejections: tuple[Rejection, ...]


def submit(db: Database, request: SubmitRequest, rows: Iterable[Ticket | Rejection]) -> Submission:
    """Create the batch of these rows, or add to it what is new.

    Raises UserError, with nothing changed, for a changed spec or model without `new`, a cancelled batch, one that
    another process is loading, and a source without a usable ticket; StoreUnavailable; whatever `rows` raises.
    """
    now = db.now()
    with db.read() as connection:
        _target(_versions(connection, request), request, now)
    with Spool(request.spec_hash, request.model) as spool:
        spool.fill(rows)
        if not spool.tickets and not request.allow_empty:
            raise no_tickets(request, spool.rejected, spool.rejections)
        expire_overdue(db)  # whether a scheduler was there at the deadline or not, what is added comes under a new one
        load = _open(db, request)
        try:
            done = sum((chunks.put(db, load, chunk) for chunk in spool.chunks(CHUNK)), start=Put())
            return _complete(db, load, spool, done)
        except BaseException:
            with suppress(UserError):  # the database may be what failed; a lease ends by itself
                _give_up(db, load)
            raise


def target(db: Database, request: SubmitRequest) -> str | None:
    """The id of the batch that a submit would top up, None where it would make one.

    Raises UserError where it would be refused whatever the source holds; StoreUnavailable.
    """
    with db.read() as connection:
        found = _target(_versions(connection, request), request, db.now())
    return None if found is None else str(found.id)


def open_beside(db: Database, request: SubmitRequest, batch_id: str) -> list[str]:
    """The other batches of the same source and date that have not ended. Raises StoreUnavailable."""
    with db.read() as connection:
        versions = _versions(connection, request)
    return [row.id for row in versions if row.id != batch_id and _goes_on(row)]


def _versions(connection: Connection, request: SubmitRequest, *, lock: bool = False) -> list[Row[Any]]:
    """The batches of this source and date, the newest first."""
    query = select(batches).where(batches.c.source_key == request.source_key, batches.c.date_key == _date_key(request))
    if lock:
        query = query.order_by(batches.c.id).with_for_update()
    return sorted(connection.execute(query), key=lambda row: int(row.sequence), reverse=True)


def _target(versions: list[Row[Any]], request: SubmitRequest, now: datetime) -> Row[Any] | None:
    """The batch that the request tops up; None when it makes a new one."""
    whole = [row for row in versions if not _is_abandoned(row, now)]
    if request.new or not whole:
        return None
    same = [row for row in whole if (row.spec_hash, row.model) == (request.spec_hash, request.model)]
    if not same:
        last = whole[0]
        raise UserError(
            f"batch {last.id} of this source and date was submitted with {_what_differs(last, request)}: "
            f"add --new to make a second batch{_goes_on(last)}"
        )
    batch = same[0]
    if batch.state in (BatchState.CANCELLING, BatchState.CANCELLED):
        raise UserError(f"batch {batch.id} was cancelled and stays closed: add --new to make another one")
    if loading.is_held(batch, now):
        raise loading.being_loaded(batch)
    return batch


def _what_differs(row: Row[Any], request: SubmitRequest) -> str:
    differing = [] if row.model == request.model else [f"another model ({row.model}, now {request.model})"]
    if row.spec_hash != request.spec_hash:
        of_spec = list(differences(row.spec, request.spec))
        differing += of_spec or [f"another form of the prompt ({row.spec_hash[:12]}, now {request.spec_hash[:12]})"]
    return " and ".join(differing)


def _goes_on(row: Row[Any]) -> str:
    is_over = BatchState(row.state).is_final or row.state == BatchState.CANCELLING
    return "" if is_over else f"; {row.id} goes on beside it, unless tickets-batch cancel {row.id} ends it first"


def _is_abandoned(row: Row[Any], now: datetime) -> bool:
    """True for what a killed submit has left."""
    return bool(row.state == BatchState.LOADING and not loading.is_held(row, now))


def _open(db: Database, request: SubmitRequest) -> Load:
    """The batch to load, under the loader's lease."""
    while True:
        now = db.now()
        with db.begin() as connection:
            versions = _versions(connection, request, lock=True)
            abandoned = next((row for row in versions if _is_abandoned(row, now)), None)
            if abandoned is None:
                found = _target(versions, request, now)
                if found is None:
                    return _create(connection, request, 1 + max((row.sequence for row in versions), default=0), now)
                return _load(request, found.id, loading.take(connection, found, now), created=False)
            token = loading.take(connection, abandoned, now)
        _discard(db, abandoned.id, token)


def _create(connection: Connection, request: SubmitRequest, sequence: int, now: datetime) -> Load:
    day = now.date() if request.date is None else request.date
    batch_id = f"batch_{day:%Y%m%d}_{''.join(secrets.choice(ID_ALPHABET) for _ in range(6))}"
    token = secrets.token_hex(16)
    values: Values = {
        "id": batch_id,
        "date": request.date,
        "zone": request.zone,
        "source_key": request.source_key,
        "date_key": _date_key(request),
        "sequence": sequence,
        "source": request.source,
        "spec": dict(request.spec),
        "spec_hash": request.spec_hash,
        "model": request.model,
        "pools": list(request.pools),
        "state": BatchState.LOADING.value,
        "created_at": now,
        "not_before": request.not_before,
        "deadline_at": request.deadline_at,
        **loading.lease(token, now),
    }
    try:
        connection.execute(insert(batches), values)
    except IntegrityError:
        raise UserError("another submit of this source and date has just begun: wait for it, then try again") from None
    return _load(request, batch_id, token, created=True)


def _load(request: SubmitRequest, batch_id: str, token: str, *, created: bool) -> Load:
    return Load(batch_id, token, created, request.not_before, request.deadline_at, tuple(request.pools), request.update)


def _complete(db: Database, load: Load, spool: Spool, done: Put) -> Submission:
    """The last transaction: a new batch begins to run, the lease ends, the rejections are those of this reading."""
    now = db.now()
    listed = [
        {"batch_id": load.batch_id, "line": row.line, "custom_id": row.custom_id, "reason": row.reason}
        for row in spool.rejections
    ]
    with db.begin() as connection:
        row = tally.add(connection, load.batch_id, {})
        loading.keep(connection, row, load.token, now)
        values: Values = {"loader_token": null(), "loader_expires_at": null(), "rejected": spool.rejected}
        if load.created:
            values["state"] = BatchState.RUNNING.value
        if row.blocked:
            values["probe_at"] = now  # who submits again may well have mended what blocks it
        connection.execute(update(batches).where(batches.c.id == load.batch_id).values(values))
        connection.execute(delete(rejections).where(rejections.c.batch_id == load.batch_id))
        if listed:
            connection.execute(insert(rejections), listed)
        counts = {name: getattr(done, name) for name in ("added", "reused", "already", "updated")}
        kind = EventKind.SUBMITTED if load.created else EventKind.TOPPED_UP
        events.add(connection, now, kind, load.batch_id, **counts, changed=done.changed, rejected=spool.rejected)
        tally.close_if_done(connection, tally.add(connection, load.batch_id, {}), now)
    return Submission(
        batch_id=load.batch_id,
        created=load.created,
        reopened=done.reopened,
        added=done.added,
        reused=done.reused,
        already=done.already,
        changed=done.changed,
        changed_ids=tuple(done.changed_ids),
        updated=done.updated,
        busy_ids=tuple(done.busy_ids),
        rejected=spool.rejected,
        rejections=tuple(spool.rejections),
    )


def _give_up(db: Database, load: Load) -> None:
    if load.created:
        _discard(db, load.batch_id, load.token)
    else:
        loading.release(db, load.batch_id, load.token)


def _discard(db: Database, batch_id: str, token: str) -> None:
    """Throw away a batch that was never completed, as long as the lease is ours."""
    while True:
        now = db.now()
        with db.begin() as connection:
            batch = connection.execute(select(batches).where(batches.c.id == batch_id)).one()
            in_range = jobs.c.id.between(batch.first_job_id, batch.last_job_id)
            chunk = select(jobs.c.id).where(in_range, jobs.c.batch_id == batch_id).limit(DISCARDED)
            ids = list(connection.execute(chunk).scalars())
            shown = (jobs.c.state, jobs.c.reused, jobs.c.text_bytes)
            gone = connection.execute(delete(jobs).where(jobs.c.id.in_(ids)).returning(*shown)).all()
            ours = tally.add(connection, batch_id, _gone(gone))
            if ours.state != BatchState.LOADING:  # cancelled meanwhile: it stays, as a cancelled batch
                connection.rollback()
                return
            loading.keep(connection, ours, token, now)
            if not ids:
                connection.execute(delete(batches).where(batches.c.id == batch_id))
                return


def _gone(gone: Sequence[Any]) -> Mapping[str, int]:
    """What the counters lose with these jobs: a batch that is cancelled between two chunks keeps the rest."""
    moved = {"total": -len(gone), "reused": -sum(job.reused for job in gone)}
    for state, count in Counter(job.state for job in gone).items():
        moved[state] = -count
    moved[TEXT_LEFT] = -sum(job.text_bytes for job in gone if job.state == JobState.PENDING)
    return moved


def no_tickets(request: SubmitRequest, rejected: int, rejections: Sequence[Rejection]) -> UserError:
    """What to say of a source without a usable ticket."""
    when = "" if request.date is None else f" for {request.date}"
    why = "it has no rows"
    if rejections:
        first = rejections[0]
        why = f"{counted(rejected, 'row')} cannot be used, the first is line {first.line}: {first.reason}"
    return UserError(f"no usable tickets{when} in {request.source}: {why} (--allow-empty submits it all the same)")


def _date_key(request: SubmitRequest) -> str:
    return "all" if request.date is None else request.date.isoformat()
