"""That no ticket of a batch was answered for long, as `status` says it, with a deadline or without one."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from jobs.states import BatchState
from jobs.store import forecasts, unanswered
from jobs.store.batches import Batch
from jobs.store.database import Database
from jobs.store.forecasts import StoredForecast
from scheduler.pace import SILENT_SECONDS
from tickets_batch.cli.prospect import FRESH_SECONDS
from tickets_batch.progress import duration


def silence_in_words(db: Database, batch: Batch) -> str | None:
    """For how long, and why; None where tickets are answered or none is to be. Raises StoreUnavailable."""
    if batch.state is not BatchState.RUNNING or batch.blocked or not batch.pending + batch.running:
        return None
    now = db.now()
    began = _began(forecasts.of_batch(db, batch.id), now, batch.not_before)
    if began is None or (now - began).total_seconds() < SILENT_SECONDS:
        return None
    return f"for {duration((now - began).total_seconds())}: {unanswered.why_silent(db, batch.id, began)}"


def _began(made: Sequence[StoredForecast], now: datetime, not_before: datetime | None) -> datetime | None:
    """When as much was first left as now, looked at all the time since: a paused or blocked batch has no forecasts."""
    began, later = None, now
    for one in reversed(made):
        is_ours = one.jobs_left == made[-1].jobs_left and (not_before is None or one.at >= not_before)
        if not is_ours or later - one.at > timedelta(seconds=FRESH_SECONDS):
            break
        began = later = one.at
    return began
