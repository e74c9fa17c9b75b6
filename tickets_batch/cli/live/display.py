"""What a waiting command writes to: a live view on a terminal, plain lines elsewhere.

Everything goes to stderr: stdout carries data only.
"""

import os
import sys
from types import TracebackType
from typing import Protocol, Self, TextIO
from zoneinfo import ZoneInfo

from tickets_batch.cli.live.lines import Lines
from tickets_batch.cli.live.look import Look

DUMB = ("dumb", "unknown")  # terminals that cannot move their cursor


class Display(Protocol):
    """Shows one batch. `say` may be called from any thread."""

    def show(self, look: Look) -> None:
        """Show how the batch stands."""

    def say(self, line: str) -> None:
        """Tell one thing that happened."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None: ...


def display(zone: ZoneInfo, stream: TextIO | None = None) -> Display:
    """A live view where `stream` (stderr) is a terminal, plain lines otherwise; times are those of `zone`."""
    out = stream or sys.stderr
    if not out.isatty() or os.environ.get("TERM", "").lower() in DUMB:
        return Lines(out, zone)
    from tickets_batch.cli.live.screen import Screen

    return Screen(out, zone)
