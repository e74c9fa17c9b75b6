"""Every forecast that was made of a batch, so that its error can be told afterwards."""

from dataclasses import asdict, dataclass, fields
from datetime import datetime
from typing import Any

from sqlalchemy import Select, insert, select

from jobs.store.database import Database
from jobs.tables import forecasts


@dataclass(frozen=True, slots=True)
class StoredForecast:
    """What was foreseen of a batch at one moment.

    Rates are tokens a second: `achieved_rate` of late, `needed_rate` to end at the deadline, `floor_rate` with the
    protected minimum alone, `full_rate` with the whole limit. `chat_slots` is the chat in flight that was reckoned
    with. The batch was to end by `p50_at` in one case of two, by `p90_at` in nine of ten, and by `floor_at` even if
    the chat never rests. None: not known, or there is no deadline.
    """

    batch_id: str
    at: datetime
    jobs_left: int
    tokens_left: int
    achieved_rate: float | None
    needed_rate: float | None
    floor_rate: float | None
    full_rate: float | None
    chat_slots: float | None
    p50_at: datetime | None
    p90_at: datetime | None
    floor_at: datetime | None
    pace: str | None


def record(db: Database, row: StoredForecast) -> None:
    """Write one forecast. Raises StoreUnavailable."""
    with db.begin() as connection:
        connection.execute(insert(forecasts), asdict(row))


def latest(db: Database, batch_id: str) -> StoredForecast | None:
    """The newest forecast of a batch, None before the first. Raises StoreUnavailable."""
    with db.read() as connection:
        row = connection.execute(_of(batch_id).order_by(forecasts.c.at.desc()).limit(1)).one_or_none()
    return None if row is None else StoredForecast(*row)


def of_batch(db: Database, batch_id: str) -> list[StoredForecast]:
    """All forecasts of a batch, in the order in which they were made. Raises StoreUnavailable."""
    with db.read() as connection:
        return [StoredForecast(*row) for row in connection.execute(_of(batch_id).order_by(forecasts.c.at))]


def _of(batch_id: str) -> Select[Any]:
    columns = (forecasts.c[field.name] for field in fields(StoredForecast))
    return select(*columns).where(forecasts.c.batch_id == batch_id)
