"""A pool in the live view: both classes' permits on both axes, the rule that binds, and what the chat feels."""

from collections.abc import Iterator

from scheduler.capacity import Amount
from scheduler.pool_reading import Condition, PoolReading
from tickets_batch.cli.live.first_tokens import SPAN_SECONDS, Heard
from tickets_batch.cli.live.look import PoolLook
from tickets_batch.cli.live.row import Row, Tone
from tickets_batch.cli.pool_text import sources_in_words
from tickets_batch.progress import duration
from tickets_batch.words import counted

WORTH_TELLING = 0.5  # of the target: who has waited for less waits as everybody does
PULLED_BACK = (Condition.FLOOR, Condition.BLIND, Condition.STALE)


def pool_rows(pool: PoolLook, *, is_away: bool) -> Iterator[Row]:
    """The rows of one pool; one, where nothing is known of it, as while the ledgers are away (a note says why)."""
    reading = pool.reading
    if reading is None:
        why = "" if is_away else ": it is not in these settings"
        yield Row(f"what is held there is not known now{why}", f"pool {pool.name}", Tone.BAD, weight=85)
        return
    snapshot = reading.snapshot
    taken = f"; {snapshot.reclaiming.slots} asked back" if snapshot.reclaiming.slots else ""
    yield Row(f"batch  {_held(snapshot.batch, reading.limit)}{taken}", f"pool {pool.name}", weight=85)
    if reading.condition is Condition.DEDICATED:
        yield Row(_rule(reading), "  limit", weight=50)
        return
    yield Row(f"chat   {_held(reading.chat, reading.capacity.total)}", weight=84)
    yield Row(_rule(reading), "  limit", Tone.WARNING if reading.condition in PULLED_BACK else Tone.PLAIN, weight=83)
    words = ttft_in_words(pool.heard, pool.target_seconds)
    yield Row("; ".join([words, *_suffers(reading, pool.target_seconds)]), "  chat", _ttft_tone(pool), weight=86)
    fresh = all(source.is_fresh for source in reading.sources) and bool(reading.sources)
    yield Row(
        sources_in_words(reading.sources),
        "  readings",
        Tone.FAINT if fresh else Tone.WARNING,
        weight=50 if fresh else 82,
    )


def _rule(reading: PoolReading) -> str:
    """The rule that binds, by its name and in its words."""
    if reading.awaits_first:
        return f"{reading.rule_in_words}: the floor holds"
    if reading.condition is Condition.BLIND:
        return "blind: the floor holds"  # a note says the rest
    return reading.reason if reading.reason.startswith(reading.binding) else f"{reading.binding}: {reading.reason}"


def ttft_in_words(heard: Heard, target_seconds: float | None) -> str:
    """The chat's time to first token beside its target, and of when it is."""
    target = "" if target_seconds is None else f", target {target_seconds:.2f} s"
    if heard.p50_seconds is None or heard.p95_seconds is None:
        return f"no first token in the last {duration(heard.silent_seconds)}{target}"
    of = f"{heard.count} in {SPAN_SECONDS:.0f} s" if heard.is_of_late else f"{heard.count} before this view began"
    return f"first token {heard.p50_seconds:.2f} s (p50), {heard.p95_seconds:.2f} s (p95){target}; {of}"


def _held(amount: Amount, most: Amount) -> str:
    slots, tokens = counted(most.slots, "slot"), counted(most.tokens, "token")
    return f"{amount.slots:>4} of {slots:>9} {amount.tokens:>9,} of {tokens:>16}"


def _ttft_tone(pool: PoolLook) -> Tone:
    target, reading = pool.target_seconds, pool.reading
    if target is None or reading is None:
        return Tone.PLAIN
    if reading.snapshot.oldest_waiting_seconds > target or (pool.heard.p50_seconds or 0.0) > target:
        return Tone.BAD
    if pool.heard.p95_seconds is None:
        return Tone.PLAIN
    return Tone.WARNING if pool.heard.p95_seconds > target else Tone.GOOD


def _suffers(reading: PoolReading, target_seconds: float | None) -> Iterator[str]:
    """Who waits for a first token, once that begins to be long; and who was refused since the ledger began."""
    snapshot = reading.snapshot
    if snapshot.interactive_waiting and snapshot.oldest_waiting_seconds >= WORTH_TELLING * (target_seconds or 0.0):
        yield f"{snapshot.interactive_waiting} wait, for up to {snapshot.oldest_waiting_seconds:.1f} s"
    if snapshot.refused:
        yield f"{snapshot.refused:,} refused in all"
