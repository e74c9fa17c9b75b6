"""What happened, in order: one row per change that a person may ask about."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from sqlalchemy import ColumnElement, Connection, delete, insert, select

from jobs.store.database import Database
from jobs.tables import events
from jobs.text import storable


class EventKind(StrEnum):
    """What can happen; a batch's own moves are named as the state that they lead to."""

    SUBMITTED = "submitted"
    TOPPED_UP = "topped_up"
    REOPENED = "reopened"
    RETRIED = "retried"
    RESUMED = "running"
    PAUSED = "paused"
    CANCELLING = "cancelling"
    COMPLETED = "completed"
    EXPIRED = "expired"
    CANCELLED = "cancelled"
    REAPED = "reaped"
    BLOCKED = "blocked"
    UNBLOCKED = "unblocked"
    PURGED = "purged"
    PACE = "pace"
    LIMIT = "limit"


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened, to a batch, to a pool or (both None) to the whole."""

    at: datetime
    kind: str
    batch_id: str | None
    pool: str | None
    detail: Mapping[str, Any]


def record(
    db: Database, kind: EventKind, batch_id: str | None = None, *, pool: str | None = None, **detail: Any
) -> None:
    """Write one event. Raises StoreUnavailable."""
    now = db.now()
    with db.begin() as connection:
        add(connection, now, kind, batch_id, pool=pool, **detail)


def add(
    connection: Connection,
    now: datetime,
    kind: EventKind,
    batch_id: str | None = None,
    *,
    pool: str | None = None,
    **detail: Any,
) -> None:
    """Write one event within a transaction, so that it stands exactly if the change stands."""
    row = {"at": now, "kind": kind.value, "batch_id": batch_id, "pool": pool, "detail": _clean(detail)}
    connection.execute(insert(events), row)


def recent(db: Database, batch_id: str | None = None, limit: int = 100) -> list[Event]:
    """The newest events, newest first, of one batch or of all. Raises StoreUnavailable."""
    return _newest(db, limit, *([] if batch_id is None else [events.c.batch_id == batch_id]))


def of_pool(db: Database, pool: str, limit: int) -> list[Event]:
    """The newest events of a pool, newest first. Raises StoreUnavailable."""
    return _newest(db, limit, events.c.pool == pool)


def forget_pools(db: Database, older_than_seconds: float) -> int:
    """Remove what happened to pools longer ago than this; returns how many events. Raises StoreUnavailable."""
    before = db.now() - timedelta(seconds=older_than_seconds)
    with db.begin() as connection:
        return connection.execute(delete(events).where(events.c.pool.is_not(None), events.c.at < before)).rowcount


def _newest(db: Database, limit: int, *where: ColumnElement[bool]) -> list[Event]:
    columns = (events.c.at, events.c.kind, events.c.batch_id, events.c.pool, events.c.detail)
    query = select(*columns).where(*where).order_by(events.c.id.desc()).limit(limit)
    with db.read() as connection:
        return [Event(*row) for row in connection.execute(query)]


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return storable(value)
    if isinstance(value, Mapping):
        return {_clean(str(key)): _clean(item) for key, item in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return None  # JSON has no word for it
    if isinstance(value, list | tuple):
        return [_clean(item) for item in value]
    return value
