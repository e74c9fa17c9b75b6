"""A simulated night as a person reads it, as JSON, and its timeline as a file."""

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from scheduler.limit import Rule
from scheduler.simulation.night import Night, Outcome, Row
from scheduler.simulation.paced import Told, changes
from tickets_batch.cli.pool_text import amount_in_words
from tickets_batch.cli.simulate_inputs import Engine, Tickets
from tickets_batch.cli.times import iso, shown_instant
from tickets_batch.progress import duration
from tickets_batch.words import counted

HEADINGS = ("done at", "left", "tickets/s", "TTFT p50", "p95", "p99", "late", "refused", "at floor", "wasted")
WIDTHS = (17, 8, 10, 9, 8, 8, 7, 8, 12, 7)


@dataclass(frozen=True, slots=True)
class Played:
    """A night, what it came to, what was foreseen in it, and where its parts come from.

    `deadline_at` is None where the night only ends because no night is played for longer than a day.
    """

    night: Night
    outcome: Outcome
    told: Sequence[Told]
    engine: Engine
    tickets: Tickets
    chat_origin: str
    deadline_at: datetime | None


def in_words(played: Played, zone: ZoneInfo) -> Iterator[str]:
    """The night, line by line."""
    night, outcome, capacity = played.night, played.outcome, played.night.site.capacity
    total, floor = capacity.total, capacity.floor
    yield _line(
        f"pool {night.site.name}",
        f"{amount_in_words(total)}; batch's floor {amount_in_words(floor)}",
    )
    yield _line("engine", played.engine.origin)
    lengths = f"{played.tickets.prompt_tokens:,.0f} tokens in and {played.tickets.output_tokens:,.0f} out on average"
    yield _line("tickets", f"{len(night.tickets):,} of {lengths} ({played.tickets.origin})")
    yield _line("chat", f"{played.chat_origin}; {counted(outcome.chat, 'request')} until the end")
    until = f"deadline {shown_instant(played.deadline_at, zone)}" if played.deadline_at else "no deadline"
    yield _line("night", f"from {shown_instant(night.starts_at, zone)}, {until}")
    yield ""
    yield _line("done", _end(played, zone))
    yield _line("rate", f"{_rate(played):,.2f} tickets/s, {outcome.tokens / _seconds(played):,.0f} tokens/s")
    yield _line("chat", _chat(played))
    yield _line("floor", _floor(played))
    yield _line("withdrawn", _withdrawn(outcome))
    for told in changes(played.told) if played.deadline_at else ():
        yield _line("pace", _told(told, zone))


def as_json(played: Played) -> dict[str, Any]:
    """The same as one object; the keys are stable."""
    night, outcome, profile = played.night, played.outcome, played.engine.profile
    return {
        "pool": night.site.name,
        "engine": {
            "origin": played.engine.origin,
            "is_measured": played.engine.curve is not None,
            "slots": profile.slots,
            "step_base_seconds": profile.step_base_seconds,
            "prefill_token_seconds": profile.prefill_token_seconds,
            "decode_sequence_seconds": profile.decode_sequence_seconds,
        },
        "starts_at": iso(night.starts_at),
        "deadline_at": iso(played.deadline_at),
        "ended_at": iso(outcome.ended_at),
        "finished_at": iso(outcome.finished_at),
        "tickets": {
            "total": len(night.tickets),
            "done": outcome.tickets,
            "left": outcome.tickets_left,
            "too_large": outcome.too_large,
            "prompt_tokens": round(played.tickets.prompt_tokens, 1),
            "output_tokens": round(played.tickets.output_tokens, 1),
            "origin": played.tickets.origin,
        },
        "rate_per_second": round(_rate(played), 3),
        "chat": {
            "origin": played.chat_origin,
            "requests": outcome.chat,
            "ttft_seconds": {
                "p50": outcome.ttft_p50_seconds,
                "p95": outcome.ttft_p95_seconds,
                "p99": outcome.ttft_p99_seconds,
            },
            "late": outcome.late,
            "refused": outcome.refused,
        },
        "floor_seconds": round(outcome.floor_seconds, 1),
        "rule_seconds": {rule: round(seconds, 1) for rule, seconds in sorted(outcome.rule_seconds.items())},
        "yields": outcome.yielded,
        "withdrawn": outcome.withdrawn,
        "tokens": {"done": outcome.tokens, "wasted": outcome.wasted_tokens},
        "pace": [
            {
                "at": iso(told.forecast.at),
                "pace": told.pace,
                "p50_at": iso(told.forecast.p50_at),
                "p90_at": iso(told.forecast.p90_at),
            }
            for told in (changes(played.told) if played.deadline_at else ())
        ],
    }


def table(key: str, nights: Sequence[tuple[str, Played]], zone: ZoneInfo) -> Iterator[str]:
    """One line a value."""
    first = max(len(key), *(len(value) for value, _ in nights))
    yield _cells(key.ljust(first), HEADINGS)
    for value, played in nights:
        outcome = played.outcome
        finished = outcome.finished_at
        cells = (
            f"{finished.astimezone(zone):%m-%d %H:%M:%S}" if finished else "never",
            f"{outcome.tickets_left:,}",
            f"{_rate(played):.2f}",
            *(_short(value) for value in _ttfts(outcome)),
            f"{outcome.late:,}",
            f"{outcome.refused:,}",
            duration(outcome.floor_seconds),
            f"{_wasted_share(outcome):.1%}",
        )
        yield _cells(value.ljust(first), cells)


def write_timeline(played: Played, path: Path) -> int:
    """A row for each ten seconds, as JSON lines or, under any other name, as CSV; returns how many. Raises OSError."""
    rows = [_timeline(row) for row in played.outcome.rows]
    with path.open("w", encoding="utf-8", newline="") as file:
        if path.suffix == ".jsonl":
            file.writelines(json.dumps(row) + "\n" for row in rows)
        else:
            writer = csv.DictWriter(file, list(rows[0]) if rows else [])
            writer.writeheader()
            writer.writerows(rows)
    return len(rows)


def _timeline(row: Row) -> Mapping[str, Any]:
    """The names of what a sample of a real night has too are the same."""
    return {
        "at": iso(row.at),
        "seconds": round(row.seconds, 3),
        "limit_slots": row.limit.slots,
        "limit_tokens": row.limit.tokens,
        "batch_slots": row.held.slots,
        "batch_tokens": row.held.tokens,
        "interactive_slots": row.chat.slots,
        "interactive_tokens": row.chat.tokens,
        "interactive_waiting": row.waiting,
        "interactive_arrivals": row.arrivals,
        "interactive_refused": row.refused,
        "withdrawn": row.withdrawn,
        "ttft_seconds": row.ttft_seconds,
        "reason": row.rule,
        "is_at_floor": row.is_at_floor,
        "tickets": row.tickets,
        "tokens": row.tokens,
        "tickets_left": row.tickets_left,
        "tokens_left": row.tokens_left,
    }


def _line(name: str, words: str) -> str:
    return f"{name:<10} {words}"


def _cells(first: str, cells: Sequence[str]) -> str:
    return "".join([first, *(cell.rjust(width) for cell, width in zip(cells, WIDTHS, strict=True))])


def _end(played: Played, zone: ZoneInfo) -> str:
    outcome, finished = played.outcome, played.outcome.finished_at
    too_large = f"; {counted(outcome.too_large, 'ticket')} too large for the pool" if outcome.too_large else ""
    if finished is None:
        left = counted(outcome.tickets_left, "ticket")
        when = "at the deadline" if played.deadline_at else "after a day"
        return f"not: {left} left {when}{too_large}"
    after = f"{shown_instant(finished, zone)}, after {duration(_seconds(played))}"
    spare = (played.deadline_at - finished).total_seconds() if played.deadline_at else 0.0
    return f"{after}{f', {duration(spare)} before the deadline' if spare > 0 else ''}{too_large}"


def _chat(played: Played) -> str:
    outcome = played.outcome
    half, most, worst = _ttfts(outcome)
    if half is None or most is None or worst is None:
        return "no chat request was answered" if outcome.refused else "nobody chatted"
    target = played.night.site.ttft_target_seconds
    return (
        f"first token after {half:.2f} s (p50), {most:.2f} s (p95), {worst:.2f} s (p99); "
        f"{outcome.late:,} over {target:g} s, {outcome.refused:,} refused"
    )


def _floor(played: Played) -> str:
    outcome = played.outcome
    by_rule = sorted(outcome.rule_seconds.items(), key=lambda item: -item[1])
    share = outcome.floor_seconds / _seconds(played)
    rules = ", ".join(f"{rule} {seconds / _seconds(played):.0%}" for rule, seconds in by_rule if seconds > 0)
    is_dedicated = Rule.DEDICATED in outcome.rule_seconds
    return (
        "no floor: the pool is batch's own"
        if is_dedicated
        else (f"{duration(outcome.floor_seconds)} at the floor ({share:.0%} of the time); the rule that bound: {rules}")
    )


def _withdrawn(outcome: Outcome) -> str:
    words = f"{counted(outcome.withdrawn, 'request')}, {outcome.yielded:,} of them done again later"
    return f"{words}; {counted(outcome.wasted_tokens, 'token')} wasted ({_wasted_share(outcome):.1%})"


def _told(told: Told, zone: ZoneInfo) -> str:
    forecast = told.forecast
    ends = [
        f"{name} {end.astimezone(zone):%H:%M}"
        for name, end in (("p50", forecast.p50_at), ("p90", forecast.p90_at))
        if end is not None
    ]
    return f"{told.pace} from {forecast.at.astimezone(zone):%H:%M} on; the forecast then: {', '.join(ends) or 'no end'}"


def _seconds(played: Played) -> float:
    return max(0.001, (played.outcome.ended_at - played.night.starts_at).total_seconds())


def _rate(played: Played) -> float:
    return played.outcome.tickets / _seconds(played)


def _wasted_share(outcome: Outcome) -> float:
    return outcome.wasted_tokens / max(1, outcome.wasted_tokens + outcome.tokens)


def _ttfts(outcome: Outcome) -> tuple[float | None, float | None, float | None]:
    return outcome.ttft_p50_seconds, outcome.ttft_p95_seconds, outcome.ttft_p99_seconds


def _short(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds:.3f}"
