"""Batches as a person reads them on a terminal."""

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from zoneinfo import ZoneInfo

from jobs.states import BatchState
from jobs.store.batches import Batch
from jobs.store.events import Event
from jobs.store.services import Service
from scheduler.pool_reading import PoolReading
from tickets_batch.cli.pool_text import pool_in_words
from tickets_batch.cli.prospect import Prospect
from tickets_batch.cli.times import shown_instant
from tickets_batch.cli.view import done_in_words, eta, rate_per_second
from tickets_batch.words import counted

HEADINGS = ("batch", "date", "state", "done", "failed", "expired", "deadline")
COLUMNS = 80


def batches_in_words(batches: Iterable[Batch], zone: ZoneInfo) -> str:
    """A table, one line a batch."""
    rows = [HEADINGS, *(_row(batch, zone) for batch in batches)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADINGS))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What is known beside the batch itself: its pools, what changed there, who works.

    `why_away` says why there are no pools, `changes` are those of each pool's limit, newest first. `silence` says that
    no ticket was answered for long, `was_blocked` why no job could succeed at the end of a batch that has ended.
    """

    prospect: Prospect
    pools: Mapping[str, PoolReading]
    why_away: str | None
    changes: Mapping[str, Sequence[Event]]
    at_work: Sequence[Service]
    silence: str | None = None
    was_blocked: str | None = None


def batch_in_words(batch: Batch, around: Surroundings, zone: ZoneInfo, now: datetime) -> str:
    """One batch: how far it is, what it may hold and holds, what it has cost, and who works on it."""
    lines = [f"{batch.id}: {state_in_words(batch, zone, now)}"]
    lines += [fact(name, words) for name, words in _facts(batch, around, zone, now) if words]
    return "\n".join(lines)


def fact(name: str, words: str) -> str:
    """A name, and what is to be said of it beside it."""
    return textwrap.fill(
        words,
        COLUMNS,
        initial_indent=f"  {name:<10} ",
        subsequent_indent=" " * 13,
        break_long_words=False,
        break_on_hyphens=False,
    )


def state_in_words(batch: Batch, zone: ZoneInfo, now: datetime) -> str:
    """The state, with what keeps the batch from going on if anything does."""
    if batch.blocked:
        return f"{batch.state}, blocked: {batch.blocked}"
    if not batch.state.is_final and batch.not_before is not None and batch.not_before > now:
        return f"{batch.state}, waiting for {shown_instant(batch.not_before, zone)}"
    return batch.state.value


def _row(batch: Batch, zone: ZoneInfo) -> tuple[str, ...]:
    state = f"{batch.state}, blocked" if batch.blocked else batch.state.value
    return (
        batch.id,
        str(batch.date or "all"),
        state,
        done_in_words(batch),
        f"{batch.failed:,}",
        f"{batch.expired:,}",
        shown_instant(batch.deadline_at, zone) if batch.deadline_at else "none",
    )


def _facts(batch: Batch, around: Surroundings, zone: ZoneInfo, now: datetime) -> Iterable[tuple[str, str]]:
    rate = rate_per_second(batch, now)
    is_foreseen = around.prospect.forecast is not None or batch.state is BatchState.PAUSED
    finish = None if is_foreseen else eta(batch, rate, now)
    yield "source", batch.source + (f", {batch.date} {batch.zone}" if batch.date else ", every row")
    yield "tickets", _tickets(batch)
    yield "blocked", f"to the end: {around.was_blocked}" if around.was_blocked else ""
    yield "no answer", around.silence if around.silence and not around.prospect.waits_for else ""
    yield "rate", f"{rate:,.1f} tickets/s since the first" if rate else ""
    yield "done at", f"about {shown_instant(finish, zone)} at that rate" if finish else ""
    yield from around.prospect.in_words(batch, zone)
    yield "deadline", shown_instant(batch.deadline_at, zone) if batch.deadline_at else "none"
    yield "finished", shown_instant(batch.finished_at, zone) if batch.finished_at else ""
    yield (
        "tokens",
        f"{batch.prompt_tokens:,} prompt, {batch.completion_tokens:,} completion, {batch.wasted_tokens:,} wasted",
    )
    yield "put back", f"{counted(batch.yields, 'yield')}, {batch.withdrawn:,} withdrawn in flight"
    if not batch.state.is_final:
        for name in batch.pools:
            if name in around.pools:
                yield from pool_in_words(around.pools[name], around.changes.get(name, ()), zone)
            elif not around.why_away:
                yield f"pool {name}", "its limit is not known: it is not in these settings"
        yield "limit", f"unknown: {around.why_away}" if around.why_away else ""
        yield "at work", services_in_words(around.at_work)


def _tickets(batch: Batch) -> str:
    counts = [(batch.succeeded, "succeeded"), (batch.failed, "failed"), (batch.expired, "expired")]
    counts += [(batch.cancelled, "cancelled"), (batch.running, "running"), (batch.pending, "pending")]
    shown = [f"{count:,} {word}" for count, word in counts if count]
    shown += [f"{batch.reused:,} of them reused"] if batch.reused else []
    shown += [f"{counted(batch.rejected, 'row')} rejected"] if batch.rejected else []
    return ", ".join([f"{batch.total:,}", *shown])


def services_in_words(at_work: Sequence[Service]) -> str:
    """Who is alive: `1 scheduler, 2 workers`."""
    roles = sorted({service.role for service in at_work})
    return ", ".join(counted(sum(service.role == role for service in at_work), role) for role in roles) or "nobody"
