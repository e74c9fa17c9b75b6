"""The rows of a CSV file as people export them: any usual separator, quoted cells over many lines, some rows broken."""

import csv
import re
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any

from jobs.intake.columns import Positions, Wanted, positions
from jobs.intake.decode import LINE_LIMIT_CHARACTERS, LineTooLong, TextLines, open_lines
from jobs.intake.reading import PARTS, Record, id_of_unusable
from jobs.ticket import Rejection
from tickets_batch.errors import UserError
from tickets_batch.words import counted

SEPARATORS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "pipe"}
ROW_LIMIT_LINES = 1_048_576  # a row of more is a quote without its end: its lines are kept until that is known
_EXCEL_HINT = re.compile(r'"?sep=(?P<separator>[,;|\t])"?\s*', re.IGNORECASE)

csv.field_size_limit(LINE_LIMIT_CHARACTERS)  # one for the whole process; Python's own ends a cell at 131,072 characters


class CsvRows:
    """The records of one CSV file; it can be read again and again.

    Raises UserError at construction when the file cannot be used or its header lacks a required column.
    """

    kind = "CSV"

    def __init__(self, path: Path, wanted: Wanted) -> None:
        self._path = path
        self._wanted = wanted
        self.notes: tuple[str, ...] = ()
        with open_lines(path) as text:
            if text.beginning.startswith(("{", "[")):
                raise UserError(f"{path} holds JSON, not CSV: one object a line is JSONL, named .jsonl")
            _, header = self._header(_Lines(text))
        self._positions = positions(wanted, header)
        wanted.refuse_missing(str(path), self._positions.by_part, header)
        self._lacking = wanted.note_missing(self._positions.by_part, header)

    def __iter__(self) -> Iterator[Record | Rejection]:
        places = self._positions
        pick = _picker(places)
        short_rows = 0
        with open_lines(self._path) as text:
            lines = _Lines(text)
            separator, _ = self._header(lines)
            for line, cells in _rows(lines, separator, places.width):
                if isinstance(cells, str):
                    yield Rejection(line, cells)
                elif any(cells):
                    if len(cells) != places.width and (reason := _wrong_width(cells, places)):
                        yield Rejection(line, reason, id_of_unusable(_cell(cells, places.by_part["id"])))
                        continue
                    short_rows += len(cells) < places.width
                    if pick is not None and len(cells) == places.width:
                        yield Record(line, *pick((*cells, None)))
                    else:
                        yield _record(line, cells, places)
            self.notes = (*text.notes, *self._what_was_found(separator, short_rows))

    def _header(self, lines: "_Lines") -> tuple[str, list[str]]:
        """The separator and the column names; `lines` then stand behind the header.

        The separator is the one that Excel's `sep=` line names, else the one that shows most of the wanted columns.
        """
        try:
            line = _first_line(lines)
            if hint := _EXCEL_HINT.fullmatch(line):
                line = _first_line(lines)
        except LineTooLong as error:
            raise UserError(f"{self._path}: its header cannot be read: {error}") from error
        if not line:
            raise UserError(f"{self._path} has no header: the first line must name the columns")

        def shown_by(separator: str) -> tuple[int, int]:
            names = _leniently(line, separator)
            return len(positions(self._wanted, names).by_part), len(names)

        separator = hint["separator"] if hint else max(SEPARATORS, key=shown_by)
        lines.give_back(0)
        _, cells = next(_rows(lines, separator, 0))
        if isinstance(cells, str):
            raise UserError(f"{self._path}: its header cannot be read: {cells}")
        return separator, cells

    def _what_was_found(self, separator: str, short_rows: int) -> Iterator[str]:
        if separator != ",":
            yield f"the separator is a {SEPARATORS[separator]}"
        for name, times in self._positions.repeated.items():
            yield f'the column "{name}" is there {times} times: the first that is not empty counts'
        yield from self._lacking
        if short_rows:
            yield f"rows that end before the header does, behind every column that is used: {short_rows:,}"


class _RowTooLong(Exception):
    """The row at hand has more lines than any row can have."""


class _Lines:
    """Lines for the csv reader, each with its number; those of the row at hand can be given back."""

    def __init__(self, text: TextLines) -> None:
        self._text = text
        self._returned: deque[tuple[int, str]] = deque()
        self.taken: list[tuple[int, str]] = []
        self.at_end = False

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        if len(self.taken) >= ROW_LIMIT_LINES:
            raise _RowTooLong
        if self._returned:
            numbered = self._returned.popleft()
        else:
            line = next(self._text, "")
            if not line:
                self.at_end = True
                raise StopIteration
            numbered = self._text.number, line
        self.taken.append(numbered)
        return numbered[1]

    @property
    def number(self) -> int:
        """The number of the line read last from the file."""
        return self._text.number

    def give_back(self, kept: int) -> None:
        """Give back the lines of the row at hand behind the first `kept`."""
        self._returned.extendleft(reversed(self.taken[kept:]))
        del self.taken[kept:]


def _rows(lines: _Lines, separator: str, width: int) -> Iterator[tuple[int, list[str] | str]]:
    """Each row's first line number with its cells, or with the reason why it has none.

    Quotes are read strictly. Where they do not match, only the first line of the row is given up and the next row
    begins behind it: an open quote would otherwise swallow the rows that follow.
    """
    reader = csv.reader(lines, delimiter=separator, skipinitialspace=True, strict=True)
    while True:
        lines.taken.clear()
        try:
            cells = next(reader)
        except StopIteration:
            return
        except LineTooLong as error:
            if lines.taken:
                yield lines.taken[0][0], "a quoted cell that begins on this line has no end"
                lines.give_back(1)
            yield lines.number, str(error)
        except _RowTooLong:
            yield (
                lines.taken[0][0],
                f"a quoted cell that begins on this line has no end within {ROW_LIMIT_LINES:,} lines",
            )
            lines.give_back(1)
        except csv.Error:
            lines.give_back(1)
            number, line = lines.taken[0]
            yield number, _mended(line, separator, width, cut_off=lines.at_end)
            lines.at_end = False
        else:
            yield lines.taken[0][0], cells


def _mended(line: str, separator: str, width: int, *, cut_off: bool) -> list[str] | str:
    """The cells of a line whose quotes do not match, where they are as many as the header has; else the reason."""
    if cut_off:
        return "a quoted cell that begins on this line has no end"
    cells = _leniently(line, separator)
    return cells if len(cells) == width else "its quotes do not match: a quote inside a quoted cell must be doubled"


def _leniently(line: str, separator: str) -> list[str]:
    line = line.strip("\r\n").replace("\r", " ").replace("\n", " ")
    return next(csv.reader([line], delimiter=separator, skipinitialspace=True), [])


def _first_line(lines: _Lines) -> str:
    """The next line that is not blank, alone at hand; an empty text at the end."""
    lines.taken.clear()
    for line in lines:
        if line.strip():
            lines.taken[:] = lines.taken[-1:]
            return line
    return ""


def _wrong_width(cells: Sequence[str], places: Positions) -> str | None:
    if len(cells) < places.reach or any(cells[places.width :]):
        return f"{counted(len(cells), 'column')}, but the header has {places.width}"
    return None


def _picker(places: Positions) -> Callable[[Sequence[object]], Sequence[Any]] | None:
    """The parts of a whole row with a None behind it, in the order of a record; None where one part has many places."""
    if any(len(where) > 1 for where in places.by_part.values()):
        return None
    return itemgetter(*(places.by_part.get(part, (places.width,))[0] for part in PARTS))


def _record(line: int, cells: Sequence[str], places: Positions) -> Record:
    parts: dict[str, object] = {part: _cell(cells, where) for part, where in places.by_part.items()}
    where = places.by_part.get("urgent", ())
    if len(where) > 1:
        parts["urgent"] = [cells[place] for place in where if place < len(cells)]
    return Record.of(line, parts)


def _cell(cells: Sequence[str], where: Sequence[int]) -> str:
    """The first of the places that holds something."""
    if len(where) == 1:
        return cells[where[0]] if where[0] < len(cells) else ""
    return next((cells[place] for place in where if place < len(cells) and cells[place]), "")
