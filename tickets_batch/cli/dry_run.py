"""`submit --dry-run`: what would be submitted, and what it would ask of the model."""

import json
from dataclasses import asdict
from datetime import UTC, datetime

import click

from jobs.preview import Preview, preview
from jobs.prompt import build_messages
from jobs.store import batches
from jobs.store.batches import Batch
from scheduler.estimate import TokenEstimator
from scheduler.pools import capacity_of
from tickets_batch.cli.database import is_missing, opened
from tickets_batch.cli.intent import Intent, Options
from tickets_batch.cli.text import counted
from tickets_batch.cli.times import iso, shown_instant
from tickets_batch.progress import duration
from tickets_batch.settings import Settings

SHOWN_REJECTIONS = 20
LOOKED_AT = 20  # earlier batches among which one with a measured speed is looked for


def dry_run(settings: Settings, options: Options, wants_json: bool) -> None:
    """Read the source to its end and print what a submit would do. Changes nothing. Raises UserError."""
    intent = Intent.of(settings, options, datetime.now(UTC))
    tokens = TokenEstimator()
    shared = sum(tokens.estimate(message["content"]) for message in build_messages(intent.spec, "", ""))
    earlier = _measured(intent)
    found = preview(
        intent.source,
        tokens_of=tokens.estimate,
        shared_tokens=shared,
        output_tokens=intent.spec.max_output_tokens,
        slots=_slots(intent),
        slot_tokens_per_second=_slot_speed(earlier, intent) if earlier else None,
    )
    if wants_json:
        click.echo(json.dumps(_as_json(intent, found), indent=2))
    else:
        click.echo("\n".join(_in_words(intent, found, earlier)))


def _slots(intent: Intent) -> int:
    return sum(capacity_of(pool).most_batch.slots for pool in intent.used)


def _measured(intent: Intent) -> Batch | None:
    """The latest completed batch of the same model and pools: its speed is the one to expect."""
    if is_missing(intent.settings):
        return None
    with opened(intent.settings) as db:
        return next((batch for batch in batches.newest_first(db, LOOKED_AT) if _is_measure(batch, intent)), None)


def _is_measure(batch: Batch, intent: Intent) -> bool:
    same = batch.model == intent.model and batch.pools == intent.pools
    return same and batch.succeeded > batch.reused and batch.started_at is not None and batch.finished_at is not None


def _slot_speed(batch: Batch, intent: Intent) -> float | None:
    assert batch.started_at is not None and batch.finished_at is not None  # noqa: S101, PT018 - see _is_measure
    seconds = (batch.finished_at - batch.started_at).total_seconds()
    tokens = batch.prompt_tokens + batch.completion_tokens
    return tokens / seconds / _slots(intent) if seconds > 0 and tokens else None


def _as_json(intent: Intent, found: Preview) -> dict[str, object]:
    return {
        "source": intent.source.describe(),
        "date": None if intent.options.every_row else intent.day.date.isoformat(),
        "tickets": found.tickets,
        "rejected": found.rejected,
        "outside_day": found.outside_day,
        "tokens": asdict(found.tokens),
        "estimated_seconds": found.seconds,
        "not_before": iso(intent.not_before),
        "deadline_at": iso(intent.deadline_at),
        "notes": [*intent.remarks, *found.notes],
        "rejections": [asdict(rejection) for rejection in found.rejections],
    }


def _in_words(intent: Intent, found: Preview, earlier: Batch | None) -> list[str]:
    zone = intent.settings.zone
    outside = f", {counted(found.outside_day, 'row')} of other days left out" if found.outside_day else ""
    lines = [
        f"would submit {counted(found.tickets, 'ticket')} of {intent.source.describe()}, {intent.whose}{outside}",
        f"model      {intent.model} on {', '.join(intent.pools)}, labels {', '.join(intent.spec.labels)}",
        f"tokens     about {found.tokens.total:,} in all; a ticket: half up to {found.tokens.p50:,}, "
        f"19 of 20 up to {found.tokens.p95:,}, the largest {found.tokens.largest:,}",
    ]
    if found.seconds is not None and earlier is not None:
        lines.append(f"time       about {duration(found.seconds)} at the speed of {earlier.id}")
    else:
        lines.append("time       not known before a first batch on this model has completed")
    if intent.not_before:
        lines.append(f"begins     {shown_instant(intent.not_before, zone)}")
    lines.append(f"deadline   {shown_instant(intent.deadline_at, zone) if intent.deadline_at else 'none'}")
    lines += [f"note       {note}" for note in (*intent.remarks, *found.notes)]
    if found.rejected:
        lines.append(f"rejected   {counted(found.rejected, 'row')} that cannot be used:")
        lines += [f"  line {row.line}: {row.reason}" for row in found.rejections[:SHOWN_REJECTIONS]]
        lines += ["  ..."] if found.rejected > SHOWN_REJECTIONS else []
    return lines
