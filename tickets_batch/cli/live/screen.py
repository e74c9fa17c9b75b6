"""The live view on a terminal: drawn anew in its place at each look, as wide and as high as the window is then."""

from types import TracebackType
from typing import Self, TextIO
from zoneinfo import ZoneInfo

from rich.console import Console, ConsoleDimensions, Group
from rich.live import Live
from rich.text import Text

from tickets_batch.cli.live.look import Look
from tickets_batch.cli.live.row import ASCII, Glyphs, Tone, laid_out
from tickets_batch.cli.live.rows import rows_of
from tickets_batch.words import printable

STYLES = {
    Tone.PLAIN: "",
    Tone.STRONG: "bold",
    Tone.GOOD: "green",
    Tone.WARNING: "yellow",
    Tone.BAD: "bold red",
    Tone.FAINT: "dim",
}


class Screen:
    """Draws only when it is shown something. After a good end the view goes away, after any other it stays.

    When the window has changed its size, it is cleared first.
    """

    def __init__(self, out: TextIO, zone: ZoneInfo) -> None:
        self._zone = zone
        self._console = Console(file=out, markup=False, highlight=False, emoji=False)
        self._live = Live(console=self._console, auto_refresh=False, redirect_stdout=False, vertical_overflow="crop")
        self._size: ConsoleDimensions | None = None
        self._glyphs = Glyphs() if self._console.encoding.startswith("utf") else ASCII

    def show(self, look: Look) -> None:
        """Show how the batch stands."""
        columns, lines = size = self._console.size
        if self._size not in (None, size):
            self._console.clear()  # the terminal has wrapped what was drawn anew: nobody knows where it stands
        self._size = size
        rows = laid_out(rows_of(look, self._zone), columns, max(1, lines - 1), self._glyphs)
        drawn = (Text(line.text, STYLES[line.tone], no_wrap=True, overflow="crop") for line in rows)
        self._live.update(Group(*drawn), refresh=True)

    def say(self, line: str) -> None:
        """Tell one thing that happened, above the view."""
        self._console.print(Text(printable(line)))

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._live.transient = kind is None
        self._live.stop()
