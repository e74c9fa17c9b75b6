"""Who is at work: schedulers, workers and gateways, each with a heartbeat."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import delete, insert, select, update

from jobs.store.database import Database
from jobs.tables import services


@dataclass(frozen=True, slots=True)
class Service:
    """One process at work."""

    role: str
    id: str
    host: str
    pid: int
    started_at: datetime
    heartbeat_at: datetime
    detail: Mapping[str, Any]


def beat(db: Database, role: str, id: str, host: str, pid: int, detail: Mapping[str, Any]) -> None:
    """Say that this process is alive, and `detail` of how it does. Raises StoreUnavailable."""
    now = db.now()
    is_ours = (services.c.role == role, services.c.id == id)
    values = {"host": host, "pid": pid, "heartbeat_at": now, "detail": dict(detail)}
    with db.begin() as connection:
        if not connection.execute(update(services).where(*is_ours).values(values)).rowcount:
            connection.execute(insert(services), {"role": role, "id": id, "started_at": now, **values})


def leave(db: Database, role: str, id: str) -> None:
    """Say that this process ends. Raises StoreUnavailable."""
    with db.begin() as connection:
        connection.execute(delete(services).where(services.c.role == role, services.c.id == id))


def alive(db: Database, role: str | None = None, within_seconds: float = 15.0) -> list[Service]:
    """The processes heard of lately, of one role or of all. Raises StoreUnavailable."""
    since = db.now() - timedelta(seconds=within_seconds)
    query = select(services).where(services.c.heartbeat_at > since).order_by(services.c.role, services.c.id)
    if role is not None:
        query = query.where(services.c.role == role)
    with db.read() as connection:
        return [Service(**row._mapping) for row in connection.execute(query)]


def has_silent(db: Database, role: str, for_seconds: float) -> bool:
    """True where a process of this role was last heard of longer ago than that: killed, or by another clock than ours.

    Raises StoreUnavailable.
    """
    before = db.now() - timedelta(seconds=for_seconds)
    query = select(services.c.id).where(services.c.role == role, services.c.heartbeat_at <= before).limit(1)
    with db.read() as connection:
        return connection.execute(query).first() is not None


def forget(db: Database, silent_seconds: float) -> int:
    """Remove the rows of processes silent for so long, which were killed; returns how many. Raises StoreUnavailable."""
    before = db.now() - timedelta(seconds=silent_seconds)
    with db.begin() as connection:
        return connection.execute(delete(services).where(services.c.heartbeat_at <= before)).rowcount
