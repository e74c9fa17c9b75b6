"""The report as one page of HTML that needs nothing else: no script, no style sheet, no font, no network."""

from collections.abc import Iterator, Mapping
from datetime import datetime
from html import escape
from typing import Any
from zoneinfo import ZoneInfo

from tickets_batch.cli.live.event_text import event_in_words
from tickets_batch.cli.times import shown_instant
from tickets_batch.progress import duration
from tickets_batch.report.figures import Figures
from tickets_batch.report.plots import Plot, plots
from tickets_batch.report.words import left_out_in_words, price_in_words, receipt_in_words, undrawn_in_words
from tickets_batch.words import counted

STYLE = """
:root { color-scheme: light; }
body { font: 15px/1.5 system-ui, sans-serif; color: #1f2937; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; margin: 0; } h2 { font-size: 1.05rem; margin: 2rem 0 .3rem; }
.receipt { font-size: 1.1rem; border-left: 4px solid #2563a8; padding: .2rem 0 .2rem 1rem; margin: 1rem 0; }
.quiet { color: #6b7280; margin: .2rem 0; }
table { border-collapse: collapse; margin: .5rem 0; }
th, td { text-align: left; padding: .15rem 1.5rem .15rem 0; vertical-align: top; font-weight: normal; }
th { color: #6b7280; } td { font-variant-numeric: tabular-nums; }
figure { margin: 0; } svg { width: 100%; height: auto; }
"""


def page(figures: Figures) -> str:
    """The whole page."""
    batch = figures.batch
    title = f"{batch.id}: {batch.state.value}"
    return "\n".join(
        [
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            # a browser asks for an icon by itself
            f'<link rel="icon" href="data:,"><title>{escape(title)}</title><style>{STYLE}</style></head><body>',
            f"<h1>{escape(title)}</h1>",
            f'<p class="quiet">{escape(_when(figures))}</p>',
            *(f'<p class="receipt">{escape(sentence)}</p>' for sentence in receipt_in_words(figures)),
            *(f'<p class="quiet">{escape(sentence)}</p>' for sentence in price_in_words(figures)),
            _table(_facts(figures)),
            *(_figure(plot) for plot in plots(figures)),
            *(f'<p class="quiet">{escape(sentence)}</p>' for sentence in undrawn_in_words(figures)),
            "<h2>What happened</h2>",
            *(f'<p class="quiet">{escape(sentence)}</p>' for sentence in left_out_in_words(figures)),
            _table(_events(figures)),
            "</body></html>\n",
        ]
    )


def _when(figures: Figures) -> str:
    batch, zone = figures.batch, ZoneInfo(figures.batch.zone)
    seconds = (figures.ended_at - figures.began_at).total_seconds()
    ends = "to" if batch.finished_at else "until now,"
    return (
        f"{batch.source}, {batch.model}: {shown_instant(figures.began_at, zone)} {ends} "
        f"{shown_instant(figures.ended_at, zone)} ({duration(seconds)})"
    )


def _facts(figures: Figures) -> Iterator[tuple[str, str]]:
    batch, zone = figures.batch, ZoneInfo(figures.batch.zone)
    counts: Mapping[str, int] = figures.as_json()["request_counts"]
    yield "tickets", f"{counts['total']:,}"
    for name in ("succeeded", "failed", "expired", "cancelled", "running", "pending", "reused", "rejected"):
        if counts[name]:
            yield name, f"{counts[name]:,}"
    yield "deadline", _instant(batch.deadline_at, zone)
    if batch.finished_at is not None:
        yield "ended", _instant(batch.finished_at, zone)
    for judged in figures.forecast_errors:
        way = "too late" if judged.error_share > 0 else "too early"
        error = f"{abs(judged.error_share):.0%} of the time left {way}"
        yield f"forecast at {judged.done_share:.0%}", error
    yield "tokens", f"{batch.prompt_tokens:,} in prompts, {batch.completion_tokens:,} in answers"
    cost = figures.cost
    if cost.pools is not None:
        share = "" if cost.batch_share is None else f"; {cost.batch_share:,.2f} by the slots that batch held"
        yield "cost", f"{cost.pools:,.2f} for its pools, for {cost.hours:.1f} h{share}"
    for pool in figures.pools:
        late = "" if pool.late_share is None else f"; target missed in {pool.late_share:.1%} of the samples with chat"
        yield f"chat on {pool.name}", f"{counted(pool.arrivals, 'request')}, {pool.refused:,} refused{late}"
        rules = ", ".join(f"{rule} {duration(seconds)}" for rule, seconds in pool.rule_seconds.items())
        if rules:
            yield f"rules on {pool.name}", rules


def _events(figures: Figures) -> Iterator[tuple[str, str]]:
    zone = ZoneInfo(figures.batch.zone)
    for event in figures.events:
        yield f"{event.at.astimezone(zone):%Y-%m-%d %H:%M:%S} {zone.key}", event_in_words(event)


def _instant(instant: datetime | None, zone: ZoneInfo) -> str:
    return "none" if instant is None else shown_instant(instant, zone)


def _table(rows: Iterator[tuple[str, str]]) -> str:
    cells = (f'<tr><th scope="row">{escape(name)}</th><td>{escape(text)}</td></tr>' for name, text in rows)
    return f"<table>{''.join(cells)}</table>"


def _figure(plot: Plot) -> str:
    says: dict[str, Any] = {"role": "img", "aria-label": plot.says}
    attributes = " ".join(f'{name}="{escape(value)}"' for name, value in says.items())
    return f'<h2>{escape(plot.title)}</h2><figure id="{escape(plot.name)}" {attributes}>{plot.svg}</figure>'
