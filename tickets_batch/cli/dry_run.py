"""`submit --dry-run`: what would be submitted, and what it would ask of the model."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

import click

from jobs.preview import Preview, preview
from jobs.prompt import build_messages
from jobs.store import batches, submissions
from jobs.store.answered import Answered
from jobs.store.batches import Batch
from jobs.store.database import Database
from jobs.store.errors import StoreUnavailable
from jobs.store.standing import Standings
from jobs.ticket import Standing
from scheduler.estimate import TokenEstimator
from scheduler.pools import capacity_of
from tickets_batch.cli.database import is_missing, opened
from tickets_batch.cli.intent import Intent, Options
from tickets_batch.cli.kept import kept_in_words
from tickets_batch.cli.times import iso, shown_instant
from tickets_batch.errors import UserError
from tickets_batch.progress import duration
from tickets_batch.settings import Settings
from tickets_batch.words import counted, printable

SHOWN_REJECTIONS = 20
LOOKED_AT = 20  # earlier batches among which one with a measured speed is looked for


@dataclass(frozen=True, slots=True)
class Foreseen:
    """What a submit would come to: the batch that it would top up, if there is one, or why it would be refused.

    `earlier` is the batch by whose speed the time is foreseen.
    """

    intent: Intent
    found: Preview
    batch: Batch | None
    reopens: bool
    refused: UserError | None
    earlier: Batch | None


def dry_run(settings: Settings, options: Options, wants_json: bool) -> None:
    """Read the source to its end and print what a submit would do. Changes nothing.

    Raises UserError, after that, where a submit would be refused.
    """
    foreseen = _foreseen(Intent.of(settings, options, datetime.now(UTC)))
    if wants_json:
        click.echo(json.dumps(_as_json(foreseen), indent=2))
    else:
        click.echo("\n".join(map(printable, _in_words(foreseen))))
    if foreseen.refused is not None:
        raise foreseen.refused


def _foreseen(intent: Intent) -> Foreseen:
    request, spec = intent.request(), intent.spec
    refused: UserError | None = None
    with ExitStack() as stack:
        db = None if is_missing(intent.settings) else stack.enter_context(opened(intent.settings))
        batch_id = None
        try:
            batch_id = submissions.target(db, request) if db else None
        except StoreUnavailable:
            raise
        except UserError as error:
            refused = error
        batch = batches.get(db, batch_id) if db and batch_id else None
        earlier = _measured(db, intent) if db else None
        tokens = TokenEstimator()
        found = preview(
            intent.source,
            tokens_of=tokens.estimate,
            shared_tokens=sum(tokens.estimate(message["content"]) for message in build_messages(spec, "", "")),
            output_tokens=spec.max_output_tokens,
            slots=_slots(intent),
            slot_tokens_per_second=_slot_speed(earlier, intent) if earlier else None,
            standing=Standings.of(db, batch_id, spec.hash, intent.model) if db else lambda ticket: Standing.NEW,
            answered=Answered(db, batch_id, spec.hash, intent.model) if db else None,
            takes_changed=intent.options.update,
        )
        now = db.now() if db else datetime.now(UTC)
    if refused is None and not found.tickets and not intent.options.allow_empty:
        refused = submissions.no_tickets(request, found.rejected, found.rejections)
    return Foreseen(intent, found, batch, _reopens(batch, found, now), refused, earlier)


def _reopens(batch: Batch | None, found: Preview, now: datetime) -> bool:
    """Whether the batch is over and would take new times for what is to do."""
    is_late = batch is not None and batch.deadline_at is not None and batch.deadline_at <= now
    return batch is not None and found.to_do > 0 and (is_late or batch.state.is_final)


def _slots(intent: Intent) -> int:
    return sum(capacity_of(pool).most_batch.slots for pool in intent.used)


def _measured(db: Database, intent: Intent) -> Batch | None:
    """The latest completed batch of the same model and pools: its speed is the one to expect."""
    return next((batch for batch in batches.newest_first(db, LOOKED_AT) if _is_measure(batch, intent)), None)


def _is_measure(batch: Batch, intent: Intent) -> bool:
    same = batch.model == intent.model and batch.pools == intent.pools
    return same and batch.succeeded > batch.reused and batch.started_at is not None and batch.finished_at is not None


def _slot_speed(batch: Batch, intent: Intent) -> float | None:
    assert batch.started_at is not None and batch.finished_at is not None  # noqa: S101, PT018 - see _is_measure
    seconds = (batch.finished_at - batch.started_at).total_seconds()
    tokens = batch.prompt_tokens + batch.completion_tokens
    return tokens / seconds / _slots(intent) if seconds > 0 and tokens else None


def _as_json(foreseen: Foreseen) -> dict[str, object]:
    intent, found, batch = foreseen.intent, foreseen.found, foreseen.batch
    not_before, deadline_at = _times(foreseen)
    return {
        "source": intent.source.describe(),
        "date": None if intent.options.every_row else intent.day.date.isoformat(),
        "batch_id": batch.id if batch else None,
        "reopens": foreseen.reopens,
        "refused": str(foreseen.refused) if foreseen.refused else None,
        "tickets": found.tickets,
        "to_do": found.to_do,
        "reused": found.reused,
        "already": found.already,
        "changed": found.changed,
        "rejected": found.rejected,
        "outside_day": found.outside_day,
        "tokens": asdict(found.tokens),
        "estimated_seconds": found.seconds,
        "not_before": iso(not_before),
        "deadline_at": iso(deadline_at),
        "notes": [*intent.remarks, *found.notes, *_kept(foreseen)],
        "rejections": [asdict(rejection) for rejection in found.rejections],
    }


def _in_words(foreseen: Foreseen) -> Iterator[str]:
    intent, found = foreseen.intent, foreseen.found
    zone = intent.settings.zone
    outside = f", {counted(found.outside_day, 'row')} of other days left out" if found.outside_day else ""
    tickets, taken = counted(found.tickets, "ticket"), found.to_do + found.reused
    if taken != found.tickets:
        tickets = f"{taken:,} of {tickets}"
    yield f"would submit {tickets} of {intent.source.describe()}, {intent.whose}{outside}"
    yield f"batch      {_batch_in_words(foreseen)}"
    yield f"model      {intent.model} on {', '.join(intent.pools)}, labels {', '.join(intent.spec.labels)}"
    if found.reused:
        left = f"{found.to_do:,} left for the model" if found.to_do else "none left for the model"
        yield f"reused     {found.reused:,} of these answered from an earlier batch, {left}"
    if found.to_do:
        yield from _effort(foreseen)
    not_before, deadline_at = _times(foreseen)
    if not_before:
        yield f"begins     {shown_instant(not_before, zone)}"
    yield f"deadline   {shown_instant(deadline_at, zone) if deadline_at else 'none'}"
    for note in (*intent.remarks, *found.notes, *_kept(foreseen)):
        yield f"note       {note}"
    if found.rejected:
        yield f"rejected   {counted(found.rejected, 'row')} that cannot be used:"
        yield from (f"  line {row.line}: {row.reason}" for row in found.rejections[:SHOWN_REJECTIONS])
        if found.rejected > SHOWN_REJECTIONS:
            yield "  ..."


def _effort(foreseen: Foreseen) -> Iterator[str]:
    found = foreseen.found
    yield (
        f"tokens     about {found.tokens.total:,} in all; a ticket: half up to {found.tokens.p50:,}, "
        f"19 of 20 up to {found.tokens.p95:,}, the largest {found.tokens.largest:,}"
    )
    if found.seconds is not None and foreseen.earlier is not None:
        yield f"time       about {duration(found.seconds)} at the speed of {foreseen.earlier.id}"
    else:
        yield "time       not known before a first batch on this model has completed"


def _batch_in_words(foreseen: Foreseen) -> str:
    """Which batch it would be, what is in it already, and what a submit would do with it."""
    batch, found = foreseen.batch, foreseen.found
    if foreseen.refused is not None:
        return "none: submit would refuse this"
    if batch is None:
        return "a new one"
    changed, taken = "", found.to_do + found.reused
    if found.changed:
        does = "would be taken anew" if foreseen.intent.options.update else "stays as it is: --update takes it"
        changed = f", {found.changed:,} of these with another text now, which {does}"
    what = "be opened again" if foreseen.reopens else "be topped up" if taken else "stay as it is"
    return f"{batch.id}, {batch.state}, has {found.already:,} of them already{changed}; it would {what}"


def _times(foreseen: Foreseen) -> tuple[datetime | None, datetime | None]:
    """Before when it would not begin, and its deadline."""
    batch = foreseen.batch
    if batch is None or foreseen.reopens:
        return foreseen.intent.not_before, foreseen.intent.deadline_at
    return batch.not_before, batch.deadline_at


def _kept(foreseen: Foreseen) -> Iterator[str]:
    if foreseen.batch is not None and not foreseen.reopens:
        yield from kept_in_words(foreseen.batch, foreseen.intent)
