"""The rows of a JSON export: a ticket or a page of tickets a line, one array, or whole pages one behind another."""

import json
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from jobs.intake.columns import Wanted
from jobs.intake.decode import TextLines, open_lines
from jobs.intake.jsonl_rows import (
    DECODER,
    LOOKED_AT_LINES,
    MOST_VALUES,
    first_field,
    has_too_many_values,
    objects_by_line,
    paths,
    present_parts,
)
from jobs.intake.reading import Record
from jobs.ticket import Rejection
from tickets_batch.errors import UserError

PIECE_CHARACTERS = 65_536
PAGE_LIMIT_CHARACTERS = 64 * 1024 * 1024  # one object, be it a ticket or a page of them
PAGES = ("tickets", "issues", "results", "data")  # what holds the tickets of a page
WRAPPERS = ("ticket", "helpdesk_ticket")  # what stands around a single one
_BETWEEN = re.compile(r"[\s,\ufeff]*")

Found = tuple[int, dict[str, object] | str]


class JsonRows:
    """The records of one JSON export; it can be read again and again.

    Raises UserError at construction when the file cannot be used or none of its first tickets has a required field,
    and while iterating when it breaks off.
    """

    kind = "JSON"

    def __init__(self, path: Path, wanted: Wanted) -> None:
        self._path = path
        self._names = wanted.names
        self.notes: tuple[str, ...] = ()
        found: dict[str, None] = {}  # the names in the order in which they come
        present: set[str] = set()
        for _, row in islice(self._rows(), LOOKED_AT_LINES):
            if isinstance(row, dict):
                found |= dict.fromkeys(paths(row))
                present |= present_parts(row, wanted.names)
        wanted.refuse_missing(str(path), present, list(found))

    def __iter__(self) -> Iterator[Record | Rejection]:
        for line, row in self._rows():
            if isinstance(row, dict):
                yield Record.of(line, {part: first_field(row, names) for part, names in self._names.items()})
            else:
                yield Rejection(line, row)

    def _rows(self) -> Iterator[Found]:
        with open_lines(self._path) as text:
            by_line = self._is_by_line()
            for line, value in objects_by_line(text) if by_line else _streamed(text, self._path):
                yield from _tickets(line, value)
            self.notes = text.notes

    def _is_by_line(self) -> bool:
        """Whether the first line is an object by itself; then so are the others, and a broken one stops none."""
        with open_lines(self._path) as text:
            if text.beginning.startswith("["):
                return False
            first = next(objects_by_line(text), None)
        return first is not None and isinstance(first[1], dict)


def _tickets(line: int, value: object) -> Iterator[Found]:
    """The tickets in a value: itself, the one that it wraps, or those of a page."""
    if isinstance(value, str):
        yield line, value
    elif isinstance(value, list):
        for item in value:
            yield from _tickets(line, item if isinstance(item, dict | list) else "not a JSON object")
    elif isinstance(value, dict):
        inside = next((value[key] for key in PAGES if isinstance(value.get(key), list)), None)
        if inside is not None and not {"id", "key"} & value.keys():
            yield from _tickets(line, inside)
        else:
            alone = next((value[key] for key in WRAPPERS if len(value) == 1 and key in value), value)
            yield line, alone if isinstance(alone, dict) else "not a JSON object"


def _streamed(text: TextLines, path: Path) -> Iterator[tuple[int, object]]:
    """The values of a document with the line on which each begins; the items of an array outside of all else alone.

    Raises UserError where it breaks off: behind that nothing tells where the next ticket begins.
    """
    buffer, at, line, is_inside = "", 0, 1, False
    while True:
        start = at
        at = _end_of(_BETWEEN.match(buffer, at))
        line += buffer.count("\n", start, at)
        if at < len(buffer) and buffer[at] == ("]" if is_inside else "["):
            is_inside, at = not is_inside, at + 1
            continue
        value: object = None
        end, reason = at, "it breaks off"
        if has_too_many_values(buffer, at):
            where = f"{path} cannot be read from line {line:,} on"
            raise UserError(f"{where}: there are more than {MOST_VALUES:,} values in one object; export smaller pages")
        if at < len(buffer):
            try:
                value, end = DECODER.raw_decode(buffer, at)
            except json.JSONDecodeError as error:
                reason = error.msg
            except RecursionError:
                raise UserError(f"{path} cannot be read from line {line:,} on: it is nested too deeply") from None
        if end > at:
            yield line, value if isinstance(value, dict | list) else "not a JSON object"
            line += buffer.count("\n", at, end)
            at = end
            continue
        more = "" if len(buffer) - at > PAGE_LIMIT_CHARACTERS else text.piece(max(PIECE_CHARACTERS, len(buffer) - at))
        if not more and (is_inside or at < len(buffer)):
            raise UserError(f"{path} cannot be read from line {line:,} on: {reason}; export or copy it again")
        if not more:
            return
        buffer, at = buffer[at:] + more, 0


def _end_of(match: re.Match[str] | None) -> int:
    return match.end() if match else 0
