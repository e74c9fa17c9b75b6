"""The rows of a JSONL file: one object a line, nested fields by dotted paths."""

import json
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path

from jobs.intake.columns import Wanted
from jobs.intake.decode import LineTooLong, TextLines, open_lines
from jobs.intake.reading import Record
from jobs.ticket import Rejection
from tickets_batch.errors import UserError

ABSENT = object()
MOST_VALUES = 2_000_000  # in one object: each takes far more memory than its characters
LOOKED_AT_LINES = 100  # enough to tell a field that is never there from one that is left out where it is empty

# Numbers stay the text that they are in the file: an id keeps every digit, and none is too long to be read.
DECODER = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=str)


class JsonlRows:
    """The records of one JSONL file; it can be read again and again.

    Raises UserError at construction when the file cannot be used or none of its first lines has a required field.
    """

    kind = "JSONL"

    def __init__(self, path: Path, wanted: Wanted) -> None:
        self._path = path
        self._names = wanted.names
        self.notes: tuple[str, ...] = ()
        found: dict[str, None] = {}  # the names in the order in which they come
        present: set[str] = set()
        reason = ""
        with open_lines(path) as text:
            for _, row in islice(objects_by_line(text), LOOKED_AT_LINES):
                if isinstance(row, dict):
                    found |= dict.fromkeys(paths(row))
                    present |= present_parts(row, wanted.names)
                else:
                    reason = reason or row
            if reason and not found:
                raise UserError(f"{path} is not JSONL, one object a line: {_what_it_is(path, text.beginning, reason)}")
        wanted.refuse_missing(str(path), present, list(found))
        self._lacking = wanted.note_missing(present, list(found))

    def __iter__(self) -> Iterator[Record | Rejection]:
        lacking = self._lacking
        with open_lines(self._path) as text:
            for line, row in objects_by_line(text):
                if not isinstance(row, dict):
                    yield Rejection(line, row)
                    continue
                record = self._record(line, row)
                lacking = lacking if record.subject is None else ()
                yield record
            self.notes = (*text.notes, *lacking)

    def _record(self, line: int, row: dict[str, object]) -> Record:
        return Record.of(line, {part: first_field(row, names) for part, names in self._names.items()})


def objects_by_line(text: TextLines) -> Iterator[tuple[int, dict[str, object] | str]]:
    """Each line's number with its object, or with the reason why it has none; blank lines are left out."""
    while True:
        try:
            line = next(text)
        except StopIteration:
            return
        except LineTooLong as error:
            yield text.number, str(error)
            continue
        if stripped := line.strip(" \t\r\n\0"):
            yield text.number, _object(stripped)


def has_too_many_values(text: str, start: int = 0) -> bool:
    """Whether a text may hold more values than an object can be read with; commas within texts count too."""
    return len(text) - start > MOST_VALUES and sum(text.count(sign, start) for sign in "{[,") > MOST_VALUES


def _object(line: str) -> dict[str, object] | str:
    if has_too_many_values(line):
        return f"not usable JSON: more than {MOST_VALUES:,} values in one object"
    try:
        value = DECODER.decode(line)
    except json.JSONDecodeError as error:
        return f"not valid JSON: {error.msg.removesuffix(' at')} at column {error.colno}"
    except RecursionError:
        return "not usable JSON: nested too deeply"
    return value if isinstance(value, dict) else "not a JSON object"


def present_parts(row: dict[str, object], names: Mapping[str, tuple[str, ...]]) -> set[str]:
    """The parts of which a field is there, be it empty."""
    return {part for part, paths in names.items() if any(_field(row, path) is not ABSENT for path in paths)}


def first_field(row: dict[str, object], names: tuple[str, ...]) -> object:
    """The first field of these names that holds something, else None."""
    found = (_field(row, name) for name in names)
    return next((value for value in found if value is not ABSENT and value is not None and value != ""), None)


def _field(row: dict[str, object], name: str) -> object:
    """The field of that name, else what its dotted path leads to, else ABSENT.

    A step is a name in an object, a place in a list, or the id in a list of objects with `id` and `value`.
    """
    if name in row:
        return row[name]
    value: object = row
    for step in name.split("."):
        if isinstance(value, dict):
            value = value.get(step, ABSENT)
        elif isinstance(value, list):
            value = _item(value, step)
        else:
            return ABSENT
    return value


def _item(items: list[object], step: str) -> object:
    if step.isdecimal() and int(step) < len(items):
        return items[int(step)]
    named = (item["value"] for item in items if isinstance(item, dict) and item.get("id") == step and "value" in item)
    return next(named, ABSENT)


def paths(row: dict[str, object], prefix: str = "", depth: int = 3) -> Iterator[str]:
    """The dotted names of a row's fields."""
    for name, value in row.items():
        if isinstance(value, dict) and depth > 1:
            yield from paths(value, f"{prefix}{name}.", depth - 1)
        else:
            yield prefix + name


def _what_it_is(path: Path, beginning: str, reason: str) -> str:
    if beginning.startswith("["):
        return f"it is one JSON array; convert it with: jq -c '.[]' {path.name} > tickets.jsonl"
    if beginning.split("\n", 1)[0].strip() == "{":
        return f"its objects spread over many lines; convert it with: jq -c . {path.name} > tickets.jsonl"
    return f"its first line is {reason}"
