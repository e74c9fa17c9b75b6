"""What a batch keeps of its own though a submit asks for something else."""

from collections.abc import Iterator
from datetime import datetime

from jobs.store.batches import Batch
from tickets_batch.cli.intent import Intent
from tickets_batch.cli.times import shown_instant


def kept_in_words(batch: Batch, intent: Intent) -> Iterator[str]:
    """One line where the batch does not take over what was asked of it, with why and what would."""
    parts = list(_kept(batch, intent))
    if not parts:
        return
    why, way = "it was at work when this was submitted", f"tickets-batch cancel {batch.id}, then submit --new, changes"
    if batch.state.is_final:
        why, way = "it has ended, and nothing new came", "submit --new makes a batch with"
    yield f"{batch.id} keeps {' and '.join(parts)}: {why}; {way} that, and what is done is not done again"


def _kept(batch: Batch, intent: Intent) -> Iterator[str]:
    """The times count only where they were asked for: those of the settings are meant for new batches."""
    options = intent.options
    if options.deadline is not None and batch.deadline_at != intent.deadline_at:
        yield f"its deadline, {_shown(batch.deadline_at, intent)}"
    if options.not_before is not None and batch.not_before != intent.not_before:
        yield f"its begin, {_shown(batch.not_before, intent)}"
    if batch.pools != intent.pools:
        yield f"its pools, {', '.join(batch.pools)}"


def _shown(instant: datetime | None, intent: Intent) -> str:
    return "none" if instant is None else shown_instant(instant, intent.settings.zone)
