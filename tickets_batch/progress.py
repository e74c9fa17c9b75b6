"""How a batch comes along, for a person who waits: one live display on a terminal, a plain line now and then elsewhere.

Everything goes to stderr: stdout carries data only.
"""

import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol, Self, TextIO

WINDOW_SECONDS = 30.0
LINE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Reading:
    """Where a batch stands at one moment. `permits` and `limit` are None while the ledger cannot be read.

    `chat` is how many chat requests are in flight beside it, `note` what keeps the batch from going on, if anything.
    """

    total: int
    done: int
    failed: int
    permits: int | None
    limit: int | None
    chat: int = 0
    note: str = ""


class Rate:
    """Tickets per second over the last half minute, from what was read at which time (monotonic seconds)."""

    def __init__(self, window_seconds: float = WINDOW_SECONDS) -> None:
        self._window_seconds = window_seconds
        self._seen: deque[tuple[float, int]] = deque()

    def add(self, at: float, done: int) -> None:
        """Take note that `done` tickets were done at `at`; fewer than before starts the measurement anew."""
        if self._seen and done < self._seen[-1][1]:
            self._seen.clear()
        self._seen.append((at, done))
        while len(self._seen) > 2 and self._seen[1][0] <= at - self._window_seconds:
            self._seen.popleft()

    @property
    def per_second(self) -> float | None:
        """The rate, None until something was done within the window."""
        if len(self._seen) < 2:
            return None
        (began, first), (ended, last) = self._seen[0], self._seen[-1]
        return (last - first) / (ended - began) if last > first and ended > began else None

    def seconds_left(self, remaining: int) -> float | None:
        """How long the rest takes at this rate, None when that cannot be told."""
        rate = self.per_second
        return remaining / rate if rate else None


class Display(Protocol):
    """What a waiting command writes to. `say` may be called from any thread."""

    def show(self, reading: Reading) -> None:
        """Show where the batch stands."""

    def say(self, line: str) -> None:
        """Tell one thing that happened."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: Any) -> None: ...


def display(stream: TextIO | None = None) -> Display:
    """A live bar where `stream` (stderr) is a terminal, plain lines otherwise."""
    out = stream or sys.stderr
    return Bar(out) if out.isatty() else Lines(out)


class Lines:
    """A line every few seconds, and one for everything that happens."""

    def __init__(
        self, out: TextIO, every_seconds: float = LINE_SECONDS, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._out = out
        self._every_seconds = every_seconds
        self._clock = clock
        self._rate = Rate()
        self._written_at: float | None = None
        self._pending: str | None = None
        self._last = ""
        self._lock = threading.Lock()

    def show(self, reading: Reading) -> None:
        """Show where the batch stands, if it is time for a line."""
        now = self._clock()
        self._rate.add(now, reading.done)
        self._pending = in_words(reading, self._rate)
        if self._written_at is None or now - self._written_at >= self._every_seconds:
            self._written_at = now
            self._write_pending()

    def say(self, line: str) -> None:
        """Tell one thing that happened."""
        with self._lock:
            print(line, file=self._out, flush=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: Any) -> None:
        self._write_pending()

    def _write_pending(self) -> None:
        if self._pending is not None and self._pending != self._last:
            self.say(self._pending)
            self._last = self._pending


class Bar:
    """A live bar with everything on one line."""

    def __init__(self, out: TextIO) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        self._rate = Rate()
        self._progress = Progress(
            BarColumn(bar_width=24),
            TextColumn("{task.percentage:>3.0f}%"),
            TextColumn("{task.fields[words]}", markup=False),
            console=Console(file=out),
            refresh_per_second=4,
        )
        self._task = self._progress.add_task("", total=None, words="")

    def show(self, reading: Reading) -> None:
        """Show where the batch stands."""
        self._rate.add(time.monotonic(), reading.done)
        words = in_words(reading, self._rate)
        self._progress.update(self._task, total=reading.total, completed=reading.done, words=words)

    def say(self, line: str) -> None:
        """Tell one thing that happened, above the bar."""
        self._progress.console.print(line, markup=False, highlight=False)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._progress.stop()


def in_words(reading: Reading, rate: Rate) -> str:
    """One line: done, failed, rate, time left, permits in use of the limit, chat, what holds it up."""
    parts = [f"{reading.done:,} of {reading.total:,} done", f"{reading.failed:,} failed"]
    if (per_second := rate.per_second) is not None:
        parts.append(f"{per_second:,.1f}/s")
    if reading.done < reading.total and (left := rate.seconds_left(reading.total - reading.done)) is not None:
        parts.append(f"{duration(left)} left")
    if reading.permits is not None:
        parts.append(f"permits {reading.permits} of {reading.limit}")
    if reading.chat:
        parts.append(f"chat {reading.chat}")
    if reading.note:
        parts.append(reading.note)
    return ", ".join(parts)


def duration(seconds: float) -> str:
    """Hours, minutes and seconds as a person writes them: `45 s`, `12 min`, `3 h 20 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes = round(whole / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
