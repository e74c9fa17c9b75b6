"""How a pool's engine answered when it was overloaded."""

from dataclasses import dataclass

from sqlalchemy import func, select

from jobs.outcomes import Symptom
from jobs.store.database import Database
from jobs.tables import attempts

LATELY = 100_000  # ids of jobs that are looked through


@dataclass(frozen=True, slots=True)
class Overloads:
    """The answers of late that said so, and how many of them named the time after which to come again."""

    answers: int
    with_retry_after: int


def of_pool(db: Database, pool: str) -> Overloads:
    """Of the newest jobs. Raises StoreUnavailable."""
    newest = select(func.max(attempts.c.job_id)).scalar_subquery()
    query = select(func.count(), func.count(attempts.c.retry_after_seconds)).where(
        attempts.c.job_id > newest - LATELY,
        attempts.c.pool == pool,
        attempts.c.symptom == Symptom.OVERLOADED.value,
        attempts.c.http_status.in_((429, 503)),
    )
    with db.read() as connection:
        return Overloads(*connection.execute(query).one())
