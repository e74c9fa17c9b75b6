"""The pictures of a report, as SVG that stands in a page by itself: no script, no font, no network."""

import io
import math
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import MaxNLocator, StrMethodFormatter

from tickets_batch.report.figures import Figures
from tickets_batch.report.pool_night import PoolNight
from tickets_batch.words import counted

BLUE, ORANGE, GREEN, RED, GREY = "#2563a8", "#d97706", "#15803d", "#c02626", "#6b7280"
WIDTH, HEIGHT = 9.0, 3.0  # inches of 72 units
MOST_BARS = 24
ZERO_FORMATS = ["", "%Y", "%b", "%d %b", "%H:%M", "%H:%M"]  # of the first of a year, a month, a day and so on
STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",  # text stays text: it can be read aloud, searched and copied
    "text.parse_math": False,  # a label may hold dollars
    "font.size": 9.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e5e7eb",
    "axes.axisbelow": True,
    "legend.frameon": False,
    "path.simplify_threshold": 0.5,
}


@dataclass(frozen=True, slots=True)
class Plot:
    """A picture with its name, its title, and what it says to those who cannot see it."""

    name: str
    title: str
    says: str
    svg: str


def plots(figures: Figures) -> Iterator[Plot]:
    """All pictures for which something is known, in the order of the page."""
    zone = ZoneInfo(figures.batch.zone)
    for pool in figures.pools:
        if not pool.curves.can_be_drawn:
            continue
        if any(seconds is not None for seconds in pool.curves.ttft_seconds):
            yield _plot(f"ttft-{pool.name}", f"What the chat felt on pool {pool.name}", _ttft, pool, zone)
        yield _plot(f"limit-{pool.name}", f"What batch might hold and held on pool {pool.name}", _limit, pool, zone)
    yield _plot("progress", "Tickets done against the deadline", _progress, figures, zone)
    if any(at is not None for at in figures.forecasts.p50_at):
        yield _plot("forecast", "When it was to be done, as foretold, and when it was", _forecast, figures, zone)
    if figures.labels:
        yield _plot("labels", "Labels", _bars, figures.labels, BLUE)
    if figures.failures:
        yield _plot("failures", "Failures by reason", _bars, figures.failures, RED)
    if figures.batch.prompt_tokens + figures.batch.completion_tokens:
        yield _plot("tokens", "Tokens", _tokens, figures)


def _ttft(axes: Axes, pool: PoolNight, zone: ZoneInfo) -> str:
    curves, target = pool.curves, pool.ttft_target_seconds
    _line(axes, curves.at, curves.ttft_seconds, BLUE, "19 of 20 first tokens within", gid="ttft")
    if target is not None:
        axes.axhline(target, color=RED, linestyle="--", linewidth=1, label="target", gid="target")
    known = [seconds for seconds in curves.ttft_seconds if seconds is not None]
    axes.set_ylim(0, max([*known, target or 0.0]) * 1.1 or 1.0)
    axes.set_ylabel("seconds")
    _night(axes, zone)
    return f"Time to first token of the chat; at worst {max(known):.2f} s" + (
        f", with a target of {target:g} s." if target is not None else "."
    )


def _limit(axes: Axes, pool: PoolNight, zone: ZoneInfo) -> str:
    curves = pool.curves
    held = [math.nan if value is None else value for value in curves.batch_slots]
    axes.fill_between(_numbers(curves.at), held, color=GREEN, alpha=0.35, linewidth=0, label="batch", gid="batch")
    _line(axes, curves.at, curves.limit_slots, GREEN, "limit of batch", gid="limit")
    _line(axes, curves.at, curves.chat_slots, ORANGE, "chat", gid="chat")
    if pool.capacity is not None:
        axes.axhline(pool.capacity.total.slots, color=GREY, linewidth=1, linestyle=":", label="capacity")
    axes.set_ylim(bottom=0)
    axes.set_ylabel("slots")
    _night(axes, zone)
    return "Slots that batch might hold, those that it held, and those that the chat held."


def _progress(axes: Axes, figures: Figures, zone: ZoneInfo) -> str:
    batch, progress = figures.batch, figures.progress
    axes.plot(_numbers(progress.at), progress.done, color=GREEN, label="done", gid="done")
    if batch.deadline_at is not None and batch.deadline_at > figures.began_at:
        ends = _numbers([figures.began_at, batch.deadline_at])
        axes.plot(
            ends, [0, batch.total], color=GREY, linestyle="--", linewidth=1, label="pace to the deadline", gid="pace"
        )
        axes.axvline(ends[1], color=RED, linewidth=1, label="deadline", gid="deadline")
    axes.set_ylim(0, max(batch.total, 1) * 1.05)
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.set_ylabel("tickets")
    _night(axes, zone)
    return f"{progress.done[-1]:,} of {counted(batch.total, 'ticket')} done."


def _forecast(axes: Axes, figures: Figures, zone: ZoneInfo) -> str:
    made, batch = figures.forecasts, figures.batch
    known = [(at, p50, p90) for at, p50, p90 in zip(made.at, made.p50_at, made.p90_at, strict=True) if p50 is not None]
    at, half = _numbers([one[0] for one in known]), _numbers([one[1] for one in known])
    most = _numbers([one[2] or one[1] for one in known])
    axes.fill_between(at, half, most, color=BLUE, alpha=0.2, linewidth=0, label="to nine cases of ten", gid="p90")
    axes.plot(at, half, color=BLUE, label="as likely as not", gid="p50")
    for instant, color, what in ((batch.finished_at, GREEN, "ended"), (batch.deadline_at, RED, "deadline")):
        if instant is not None:
            axes.axhline(_numbers([instant])[0], color=color, linewidth=1, linestyle="--", label=what, gid=what)
    _clock(axes.yaxis, zone)
    axes.set_ylabel("to be done at")
    _night(axes, zone)
    return "The end of the batch as each forecast had it, and as it was."


def _bars(axes: Axes, counts: Mapping[str, int], color: str) -> str:
    shown = dict(list(counts.items())[:MOST_BARS])
    if rest := sum(counts.values()) - sum(shown.values()):
        shown[f"{len(counts) - len(shown)} others"] = rest
    _barh(axes, shown, [color] * len(shown))
    return "; ".join(f"{name}: {count:,}" for name, count in shown.items()) + "."


def _tokens(axes: Axes, figures: Figures) -> str:
    batch = figures.batch
    counts = {"prompt": batch.prompt_tokens, "answers": batch.completion_tokens, "of these wasted": batch.wasted_tokens}
    _barh(axes, counts, [BLUE, GREEN, RED])
    return "; ".join(f"{name}: {count:,}" for name, count in counts.items()) + "."


# --- what they share


def _plot(name: str, title: str, draw: Any, *arguments: Any) -> Plot:
    with _quiet(), mpl.rc_context({**STYLE, "svg.hashsalt": name}):
        canvas = Canvas(figsize=(WIDTH, HEIGHT), layout="constrained")
        FigureCanvasSVG(canvas)
        says = draw(canvas.add_subplot(), *arguments)
        out = io.StringIO()
        canvas.savefig(out, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    return Plot(name, title, says, _inline(out.getvalue(), name))


@contextmanager
def _quiet() -> Iterator[None]:
    """A label in a script that the measuring font lacks is drawn by the reader's own."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from", category=UserWarning)
        yield


def _inline(svg: str, name: str) -> str:
    """The element alone, its ids made distinct from those of the other pictures of the page."""
    element = svg[svg.index("<svg") :]
    element = re.sub(r"<metadata>.*?</metadata>", "", element, flags=re.DOTALL)
    element = re.sub(r'(\bid="|url\(#|href="#)', lambda found: f"{found[0]}{name}-", element)
    return re.sub(
        r'(<svg[^>]*?) width="[^"]*"', r"\1", re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", element, count=1), count=1
    )


def _line(axes: Axes, at: Sequence[datetime], values: Sequence[float | None], color: str, label: str, gid: str) -> None:
    seen = [math.nan if value is None else value for value in values]
    axes.plot(_numbers(at), seen, color=color, linewidth=1.2, label=label, gid=gid)


def _barh(axes: Axes, counts: Mapping[str, int], colors: Sequence[str]) -> None:
    names = list(counts)
    axes.figure.set_size_inches(WIDTH, max(1.0, 0.5 + 0.28 * len(names)))  # type: ignore[union-attr]
    bars = axes.barh(range(len(names)), list(counts.values()), color=list(colors), height=0.7)
    axes.set_yticks(range(len(names)), [name if len(name) <= 40 else name[:39] + "…" for name in names])
    axes.bar_label(bars, fmt="{:,.0f}", padding=3)
    axes.invert_yaxis()
    axes.margins(x=0.12)
    axes.grid(axis="y", visible=False)
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))


def _night(axes: Axes, zone: ZoneInfo) -> None:
    """Time runs along the bottom, on the clock of the batch's zone."""
    _clock(axes.xaxis, zone)
    axes.margins(x=0.01)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, 1.16), ncols=4)


def _clock(axis: Axis, zone: ZoneInfo) -> None:
    locator = AutoDateLocator(tz=zone)
    axis.set_major_locator(locator)
    axis.set_major_formatter(ConciseDateFormatter(locator, tz=zone, zero_formats=ZERO_FORMATS))


def _numbers(instants: Sequence[datetime | None]) -> list[float]:
    return [float(mpl.dates.date2num(instant)) for instant in instants if instant is not None]
