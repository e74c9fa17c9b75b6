"""How a batch ended: in words, and as an exit code."""

from jobs.states import BatchState
from jobs.store import events
from jobs.store.batches import Batch
from jobs.store.database import Database
from jobs.store.events import EventKind
from tickets_batch.cli import exit_codes
from tickets_batch.cli.view import rate_per_second
from tickets_batch.progress import duration

LOOKED_THROUGH = 200  # events, newest first
BEFORE = (EventKind.UNBLOCKED, EventKind.COMPLETED, EventKind.EXPIRED)  # then it was not blocked


def exit_code(batch: Batch) -> int:
    """What the exit code says of a batch that has ended, or was left blocked."""
    if batch.state is BatchState.CANCELLED:
        return exit_codes.CANCELLED
    if batch.state is BatchState.EXPIRED:
        return exit_codes.EXPIRED
    if batch.blocked:
        return exit_codes.BLOCKED
    return exit_codes.SOME_FAILED if batch.failed else exit_codes.COMPLETED


def blocked_to_the_end(db: Database, batch: Batch) -> str | None:
    """Why no job of a batch that has ended could succeed at its end; None where one could. Raises StoreUnavailable."""
    if not batch.state.is_final:
        return None
    found = iter(events.recent(db, batch.id, LOOKED_THROUGH))
    for event in found:  # newest first: what came after the end, and the end
        if event.kind == batch.state.value:
            break
    last = next((event for event in found if event.kind in (EventKind.BLOCKED, *BEFORE)), None)
    return last.detail["why"] if last is not None and last.kind == EventKind.BLOCKED else None


def ending_in_words(batch: Batch, was_blocked: str | None = None) -> str:
    """How a batch ended, and where its results are; `was_blocked` says why no job could succeed at its end."""
    counts = [(batch.succeeded, "succeeded"), (batch.failed, "failed"), (batch.expired, "expired")]
    counts += [(batch.cancelled, "cancelled"), (batch.pending + batch.running, "left")]
    parts = [f"{count:,} {word}" for count, word in counts if count or word == "succeeded"]
    took = ""
    if batch.started_at is not None and batch.finished_at is not None:
        seconds = (batch.finished_at - batch.started_at).total_seconds()
        rate = rate_per_second(batch, batch.finished_at)
        took = f" in {duration(seconds)}" + (f" ({rate:,.1f} tickets/s)" if rate else "")
    results = f"tickets-batch results {batch.id} writes them"
    if batch.blocked and not batch.state.is_final:
        return f"{batch.id} blocked: {batch.blocked}: {', '.join(parts)}; mend that, and submit --wait again; {results}"
    why = f"; blocked to the end: {was_blocked}" if was_blocked else ""
    return f"{batch.id} {batch.state.value}: {', '.join(parts)}{took}{why}; {results}"
