"""A pool as a person reads it in `status`: what batch holds and may hold, why, and what is known of the chat."""

from collections.abc import Iterator, Sequence
from zoneinfo import ZoneInfo

from jobs.store.events import Event
from scheduler.capacity import Amount
from scheduler.pool_reading import Condition, PoolReading, Source, quantile
from tickets_batch.cli.times import shown_instant
from tickets_batch.progress import duration
from tickets_batch.words import counted

Fact = tuple[str, str]


def pool_in_words(pool: PoolReading, changes: Sequence[Event], zone: ZoneInfo) -> Iterator[Fact]:
    """What to say of a pool, each with its name. `changes` are the last ones of its limit, newest first."""
    snapshot, limit = pool.snapshot, pool.limit
    taken = f"; {snapshot.reclaiming.slots} of its slots asked back" if snapshot.reclaiming.slots else ""
    yield (
        f"pool {pool.name}",
        f"batch holds {snapshot.batch.slots} of {counted(limit.slots, 'slot')}, "
        f"{snapshot.batch.tokens:,} of {counted(limit.tokens, 'token')}{taken}",
    )
    yield "  limit", pool.reason + _since(pool, zone)
    if pool.condition is not Condition.DEDICATED:
        yield "  chat", _chat(pool)
        yield "  readings", sources_in_words(pool.sources)
    most = f"{snapshot.prefill_limit_tokens:,} at a time, or one ticket"
    yield "  prefill", f"{snapshot.prefill_tokens:,} prompt tokens before a first token; {most}"
    if pool.condition is not Condition.DEDICATED and (hours := _hours(pool, zone)):
        yield "  hours", hours
    for change in changes:
        yield "  changed", _change(change, zone)


def amount_in_words(amount: Amount) -> str:
    """Both axes: `6 slots, 18,000 tokens`."""
    return f"{counted(amount.slots, 'slot')}, {counted(amount.tokens, 'token')}"


def sources_in_words(sources: Sequence[Source]) -> str:
    """What tells of the chat, and how long ago each of them did: `ledger 1 s ago, engine 9 s ago (stale)`."""
    return ", ".join(map(_source, sources)) or "none: no source has answered"


def _since(pool: PoolReading, zone: ZoneInfo) -> str:
    """When the last limit was published, where none is in force."""
    if pool.binding != Condition.STALE or pool.published_at is None:
        return ""
    return f"; the last one is of {shown_instant(pool.published_at, zone)}"


def _chat(pool: PoolReading) -> str:
    snapshot, waited = pool.snapshot, pool.ttfts_seconds
    parts = [f"{amount_in_words(pool.chat)} in flight"]
    if snapshot.interactive_waiting:
        parts.append(
            f"{snapshot.interactive_waiting} without a first token, for up to {snapshot.oldest_waiting_seconds:.1f} s"
        )
    half, most = quantile(waited, 0.5), quantile(waited, 0.95)
    if half is not None and most is not None:
        parts.append(f"first token after {half:.2f} s (p50), {most:.2f} s (p95), last {len(waited)}")
    parts.append(f"{snapshot.refused:,} refused")
    return "; ".join(parts)


def _source(source: Source) -> str:
    if source.age_seconds is None:
        return f"{source.name} never"
    return f"{source.name} {duration(source.age_seconds)} ago{'' if source.is_fresh else ' (stale)'}"


def _hours(pool: PoolReading, zone: ZoneInfo) -> str:
    change = pool.hours.next_change(pool.at)
    if change is None:
        return ""
    until = f"until {shown_instant(change, zone)}"
    return f"open {until}" if pool.hours.is_open(pool.at) else f"closed {until}: batch stays at its floor"


def _change(change: Event, zone: ZoneInfo) -> str:
    detail = change.detail
    came_from = f"from {detail['from']} " if detail.get("from") else ""
    return f"{change.at.astimezone(zone):%m-%d %H:%M:%S} {came_from}to {detail['to']}: {detail['reason']}"
