"""Whether the jobs of a batch still have their text, without which none can be called again."""

from typing import Any

from sqlalchemy import Connection, Row, exists, func, not_, select

from jobs.states import JobState
from jobs.store.database import Database
from jobs.tables import jobs, said, tickets
from tickets_batch.errors import UserError

HAS_TEXT = exists().where(tickets.c.job_id == jobs.c.id)

_IS_RETRIABLE = jobs.c.state.in_([said(JobState.FAILED), said(JobState.EXPIRED)])


def require(connection: Connection, batch: Row[Any]) -> None:
    """Raises UserError where none of a batch's failed and expired jobs has its text."""
    left = select(jobs.c.id).where(jobs.c.batch_id == batch.id, _IS_RETRIABLE, HAS_TEXT).limit(1)
    if connection.execute(left).first() is None:
        when = f" on {batch.purged_at:%Y-%m-%d}" if batch.purged_at else ""
        raise UserError(
            f"the text of batch {batch.id} was removed{when}, so none of its tickets can be tried again: "
            "submit their source with --new, which takes over the labels that there are"
        )


def missing(db: Database, batch_id: str) -> int:
    """How many failed and expired jobs of a batch have no text. Raises StoreUnavailable."""
    count = select(func.count()).select_from(jobs).where(jobs.c.batch_id == batch_id, _IS_RETRIABLE, not_(HAS_TEXT))
    with db.read() as connection:
        return int(connection.execute(count).scalar_one())
