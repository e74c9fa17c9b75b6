"""Samples of a pool's load through the night: what a report draws and a forecast learns from."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from datetime import datetime, timedelta

from sqlalchemy import delete, insert, select

from jobs.store.database import Database
from jobs.tables import load_samples
from jobs.text import storable


@dataclass(frozen=True, slots=True)
class LoadSample:
    """One pool at one moment, and what came to it since the sample before.

    `limit_*` is what batch might hold, by the rule named in `reason`; `batch_*` and `interactive_*` are what was held.
    `interactive_arrivals` chat requests were admitted since the sample before, `interactive_refused` refused, and
    `revoked` batch permits asked back; 19 of 20 of the first tokens of chat since then came within `ttft_seconds`.
    `reading_age_seconds` is the age of the freshest source. None: nothing is known.
    """

    pool: str
    at: datetime
    limit_slots: int
    limit_tokens: int
    batch_slots: int
    batch_tokens: int
    interactive_slots: int
    interactive_tokens: int
    interactive_waiting: int
    interactive_arrivals: int
    interactive_refused: int
    revoked: int
    ttft_seconds: float | None
    reading_age_seconds: float | None
    reason: str


def record(db: Database, samples: Sequence[LoadSample]) -> None:
    """Write samples. Raises StoreUnavailable."""
    rows = [{**asdict(sample), "reason": storable(sample.reason)} for sample in samples]
    if rows:
        with db.begin() as connection:
            connection.execute(insert(load_samples), rows)


def between(db: Database, pool: str, since: datetime, until: datetime) -> list[LoadSample]:
    """The samples of a pool from `since` up to, not including, `until`, in order. Raises StoreUnavailable."""
    query = (
        select(*(load_samples.c[field.name] for field in fields(LoadSample)))
        .where(load_samples.c.pool == pool, load_samples.c.at >= since, load_samples.c.at < until)
        .order_by(load_samples.c.at)
    )
    with db.read() as connection:
        return [LoadSample(*row) for row in connection.execute(query)]


def forget(db: Database, older_than_seconds: float) -> int:
    """Remove the samples that are older; returns how many. Raises StoreUnavailable."""
    before = db.now() - timedelta(seconds=older_than_seconds)
    with db.begin() as connection:
        return connection.execute(delete(load_samples).where(load_samples.c.at < before)).rowcount
