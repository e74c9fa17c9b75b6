"""A measured curve on a terminal: a table, and bars; plain text of at most 80 columns."""

import textwrap
from collections.abc import Iterator, Sequence

from scheduler.curve import Curve, Step
from tickets_batch.cli.text import COLUMNS

RATE_COLUMNS, LEFT_COLUMNS = 28, 40
WAIT_COLUMNS, TARGET_COLUMN = 18, 12
HEADINGS = ("in", "tickets", "tokens/s", "tokens/s", "ticket s", "ticket s", "own", "probe", "probe", "probes")
UNITS = ("flight", "/s", "in", "out", "p50", "p95", "TTFT s", "p50 s", "p95 s", "n")
WIDTHS = (6, 8, 9, 9, 9, 9, 7, 6, 6, 7)


def curve_in_words(curve: Curve, ttft_target_seconds: float) -> Iterator[str]:
    """The table, what the marks mean, and the two plots side by side."""
    yield _row(HEADINGS)
    yield _row(UNITS)
    for step in curve.steps:
        yield _row(_cells(step)) + ("" if step.is_steady else " ~")
    yield ""
    if not all(step.is_steady for step in curve.steps):
        yield "~ not steady when its time was up"
    lengths = f"{curve.prompt_tokens:,.0f} tokens in and {curve.output_tokens:,.0f} out on average"
    yield textwrap.fill(f"tickets of {lengths}: {curve.tickets_from}", COLUMNS, break_long_words=False)
    yield f"the knee is at {curve.knee.in_flight} in flight: the fewest with nine tenths of the best tickets/s"
    yield ""
    yield from _plot(curve, ttft_target_seconds)


def _plot(curve: Curve, target: float) -> Iterator[str]:
    waits = f"chat probe p95, | = {target:g} s" if curve.is_probed else ""
    yield f"{'in flight':>9}  {'tickets/s':<{LEFT_COLUMNS}} {waits}".rstrip()
    best = curve.best.tickets_per_second
    for step in curve.steps:
        rate = step.tickets_per_second
        bar = "#" * max(1, round(RATE_COLUMNS * rate / best))
        mark = " knee" if step is curve.knee else ""
        left = f"{bar} {_short(rate)}{mark}"
        yield f"{step.in_flight:>9}  {left:<{LEFT_COLUMNS}} {_wait(step, target)}".rstrip()


def _wait(step: Step, target: float) -> str:
    """A bar across the mark where the target is; one that is too long ends in an arrow."""
    waited = step.probe_ttft_seconds_p95
    if waited is None:
        return ""
    length = max(1, round(TARGET_COLUMN * waited / target))
    bar = "=" * length if length <= WAIT_COLUMNS else "=" * (WAIT_COLUMNS - 1) + ">"
    bar = bar.ljust(TARGET_COLUMN + 1)
    return f"{bar[:TARGET_COLUMN]}|{bar[TARGET_COLUMN + 1 :]} {_short(waited)}"


def _row(cells: Sequence[str]) -> str:
    return " ".join(cell.rjust(width - 1) for cell, width in zip(cells, WIDTHS, strict=True))


def _cells(step: Step) -> tuple[str, ...]:
    return (
        f"{step.in_flight}",
        _short(step.tickets_per_second),
        f"{step.prompt_tokens_per_second:,.0f}",
        f"{step.completion_tokens_per_second:,.0f}",
        _short(step.ticket_seconds_p50),
        _short(step.ticket_seconds_p95),
        _short(step.ttft_seconds),
        _short(step.probe_ttft_seconds_p50),
        _short(step.probe_ttft_seconds_p95),
        f"{step.probes}",
    )


def _short(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}" if value < 100 else f"{value:,.0f}"
