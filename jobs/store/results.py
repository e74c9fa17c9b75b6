"""Results, one row per ticket, whatever became of it."""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from datetime import datetime

from sqlalchemy import select

from jobs.states import JobState
from jobs.store.database import Database
from jobs.tables import batches, jobs, rejections, results
from jobs.ticket import Rejection

PAGE = 2_000  # ids to a page; those of one batch mostly follow one another


@dataclass(frozen=True, slots=True)
class ResultRow:
    """One ticket's result; `model`, tokens and latency are those of the answer that ended it, None where none did."""

    custom_id: str
    state: JobState
    label: str | None
    error: str | None
    truncated: bool
    reused: bool
    model: str | None
    prompt_tokens: int | None
    completion_tokens: int | None
    latency_seconds: float | None
    attempts: int
    yields: int
    finished_at: datetime | None


def stream(db: Database, batch_id: str) -> Iterator[ResultRow]:
    """The batch's rows in the order of its source, read page by page.

    No transaction stays open between pages, so a slow reader holds nothing up; rows of a batch that is still running
    are each as of their page. Raises StoreUnavailable.
    """
    rows = (
        select(*((jobs.c if field.name in jobs.c else results.c)[field.name] for field in fields(ResultRow)))
        .outerjoin(results, results.c.job_id == jobs.c.id)
        .where(jobs.c.batch_id == batch_id)
        .order_by(jobs.c.id)
    )
    with db.read() as connection:
        bounds = connection.execute(
            select(batches.c.first_job_id, batches.c.last_job_id).where(batches.c.id == batch_id)
        ).one_or_none()
    if bounds is None or bounds.first_job_id is None:
        return
    # by ranges of ids, not by LIMIT: without statistics PostgreSQL would sort all that is left for every page
    for first in range(bounds.first_job_id, bounds.last_job_id + 1, PAGE):
        with db.read() as connection:
            page = connection.execute(rows.where(jobs.c.id.between(first, first + PAGE - 1))).all()
        for custom_id, state, *rest in page:
            yield ResultRow(custom_id, JobState(state), *rest)


def rejected(db: Database, batch_id: str, limit: int = 10_000) -> list[Rejection]:
    """The rows of the source that could not be used at its last reading, in its order. Raises StoreUnavailable."""
    columns = (rejections.c.line, rejections.c.reason, rejections.c.custom_id)
    query = select(*columns).where(rejections.c.batch_id == batch_id).order_by(rejections.c.line, rejections.c.id)
    with db.read() as connection:
        return [Rejection(*row) for row in connection.execute(query.limit(limit))]
