"""What was measured of each pool: one curve for each measurement, the newest holds."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import insert, select

from jobs.store.database import Database
from jobs.tables import curves


@dataclass(frozen=True, slots=True)
class StoredCurve:
    """One measurement of a pool; `detail` is what the measurer wrote, numbers and texts that JSON can hold."""

    pool: str
    model: str
    measured_at: datetime
    detail: Mapping[str, Any]


def save(db: Database, pool: str, model: str, detail: Mapping[str, Any]) -> StoredCurve:
    """Keep a measurement, made now. Raises StoreUnavailable."""
    stored = StoredCurve(pool, model, db.now(), dict(detail))
    with db.begin() as connection:
        row = {"pool": pool, "model": model, "measured_at": stored.measured_at, "detail": stored.detail}
        connection.execute(insert(curves), row)
    return stored


def latest(db: Database, pool: str) -> StoredCurve | None:
    """The newest measurement of a pool, None where there is none. Raises StoreUnavailable."""
    columns = (curves.c.pool, curves.c.model, curves.c.measured_at, curves.c.detail)
    query = select(*columns).where(curves.c.pool == pool).order_by(curves.c.id.desc()).limit(1)
    with db.read() as connection:
        row = connection.execute(query).one_or_none()
    return None if row is None else StoredCurve(*row)
