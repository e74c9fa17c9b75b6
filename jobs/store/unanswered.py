"""What the model says to a batch of which no ticket is answered."""

from datetime import datetime

from sqlalchemy import select

from jobs.outcomes import Symptom
from jobs.store.database import Database
from jobs.tables import attempts, batches

WORDS = {
    Symptom.TIMED_OUT.value: "calls time out",
    Symptom.DISCONNECTED.value: "connections break off",
    Symptom.UNREACHABLE.value: "the endpoint cannot be reached",
    Symptom.WITHDRAWN.value: "what was begun was asked back for the chat",
}


def why_silent(db: Database, batch_id: str, since: datetime) -> str:
    """What came of the newest call for the batch that began since then, in words. Raises StoreUnavailable."""
    with db.read() as connection:
        batch = connection.execute(
            select(batches.c.started_at, batches.c.first_job_id, batches.c.last_job_id).where(batches.c.id == batch_id)
        ).one()
        newest = connection.execute(
            select(attempts.c.symptom, attempts.c.http_status)
            .where(
                attempts.c.job_id.between(batch.first_job_id, batch.last_job_id),
                attempts.c.started_at >= since,
            )
            .order_by(attempts.c.started_at.desc())
            .limit(1)
        ).one_or_none()
    if batch.started_at is None:
        return "no worker has taken one"
    if newest is None:
        return "no call to the model has ended"
    if newest.http_status is not None and newest.http_status >= 400:
        return f"the model answers {newest.http_status}"
    return WORDS.get(newest.symptom, f"calls end as {newest.symptom}")
