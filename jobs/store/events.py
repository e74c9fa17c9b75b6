"""What happened, in order: one row per change that a person may ask about."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, insert, select

from jobs.store.database import Database
from jobs.tables import events
from jobs.text import storable


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened, to a batch or (`batch_id` None) to the whole."""

    at: datetime
    kind: str
    batch_id: str | None
    detail: Mapping[str, Any]


def record(db: Database, kind: str, batch_id: str | None = None, **detail: Any) -> None:
    """Write one event. Raises StoreUnavailable."""
    now = db.now()
    with db.begin() as connection:
        add(connection, now, kind, batch_id, **detail)


def add(connection: Connection, now: datetime, kind: str, batch_id: str | None = None, **detail: Any) -> None:
    """Write one event within a transaction, so that it stands exactly if the change stands."""
    connection.execute(insert(events), {"at": now, "kind": kind, "batch_id": batch_id, "detail": _clean(detail)})


def recent(db: Database, batch_id: str | None = None, limit: int = 100) -> list[Event]:
    """The newest events, newest first, of one batch or of all. Raises StoreUnavailable."""
    query = select(events.c.at, events.c.kind, events.c.batch_id, events.c.detail).order_by(events.c.id.desc())
    if batch_id is not None:
        query = query.where(events.c.batch_id == batch_id)
    with db.read() as connection:
        return [Event(*row) for row in connection.execute(query.limit(limit))]


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
