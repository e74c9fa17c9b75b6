"""A row of the live view, and how rows are laid out in a window of any size."""

import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from tickets_batch.words import printable

NAME_COLUMNS = 10
NARROW_COLUMNS = 60  # below this, rows are not set in two columns
LEAST_COLUMNS = 20  # narrower than this nothing is laid out: the window cuts it off


class Tone(StrEnum):
    """What a row is to look like; the words say the same without it."""

    PLAIN = "plain"
    STRONG = "strong"
    GOOD = "good"
    WARNING = "warning"
    BAD = "bad"
    FAINT = "faint"


@dataclass(frozen=True, slots=True)
class Row:
    """`words` under a name, or a title without one. Of rows that do not all fit, the least in `weight` are left out.

    With a `share` (0 to 1) a bar of it is drawn before the words. One that `is_cut` is never more than one line.
    """

    words: str
    name: str | None = ""
    tone: Tone = Tone.PLAIN
    weight: int = 0
    share: float | None = None
    is_cut: bool = False


@dataclass(frozen=True, slots=True)
class Glyphs:
    """The characters that not every terminal has."""

    done: str = "\N{BOX DRAWINGS HEAVY HORIZONTAL}"
    left: str = "\N{BOX DRAWINGS LIGHT TRIPLE DASH HORIZONTAL}"
    more: str = "\N{HORIZONTAL ELLIPSIS}"


ASCII = Glyphs(done="#", left="-", more="..")


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the window."""

    text: str
    tone: Tone = Tone.PLAIN


def laid_out(rows: Iterable[Row], columns: int, lines: int, glyphs: Glyphs) -> list[Line]:
    """The rows in a window of this size; what does not fit is left out, the least weighty row first."""
    columns = max(columns, LEAST_COLUMNS)
    blocks = [(row, list(_lines(row, columns, glyphs))) for row in rows]
    while len(blocks) > 1 and sum(len(block) for _, block in blocks) > lines:
        blocks.remove(min(reversed(blocks), key=lambda block: block[0].weight))
    return [line for _, block in blocks for line in block][:lines]


def _lines(row: Row, columns: int, glyphs: Glyphs) -> Iterator[Line]:
    first, indent = _beginning(row, columns)
    words = printable(row.words)
    if columns < NARROW_COLUMNS:
        words = " ".join(words.split())
    if row.share is not None:
        words = f"{_bar(row.share, columns - len(first) - len(words) - 1, glyphs)}{words}"
    if row.is_cut:
        whole = first + words
        yield Line(whole if len(whole) <= columns else whole[: columns - len(glyphs.more)] + glyphs.more, row.tone)
        return
    for line in textwrap.wrap(words, columns, initial_indent=first, subsequent_indent=indent, break_on_hyphens=False):
        yield Line(line, row.tone)


def _beginning(row: Row, columns: int) -> tuple[str, str]:
    if row.name is None:
        return "", "  "
    if columns < NARROW_COLUMNS:
        return f"{row.name.strip()}: " if row.name else "  ", "  "
    return f"  {row.name:<{NAME_COLUMNS}} ", " " * (NAME_COLUMNS + 3)


def _bar(share: float, columns: int, glyphs: Glyphs) -> str:
    """A bar with a space behind it; nothing where there is no room for one."""
    columns = min(columns, 40)
    if columns < 8:
        return ""
    done = int(share * columns)  # rounded down: full is done
    return glyphs.done * done + glyphs.left * (columns - done) + " "
