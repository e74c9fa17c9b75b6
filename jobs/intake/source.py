"""Where a day's tickets come from, whatever its form: a CSV or JSONL file, or a SQL query."""

import hashlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

from jobs.days import Day
from jobs.intake.columns import Wanted
from jobs.intake.csv_rows import CsvRows
from jobs.intake.decode import open_lines
from jobs.intake.jsonl_rows import JsonlRows
from jobs.intake.reading import Reading, Record
from jobs.intake.sql_rows import SqlRows, identity, selects_day
from jobs.ticket import Rejection, Ticket
from tickets_batch.errors import UserError
from tickets_batch.settings import Source as SourceSettings
from tickets_batch.settings import Urgent, reveal

KEY_LIMIT_CHARACTERS = 128  # what the column for it holds
DATE_FIELD = "{date}"


class Rows(Protocol):
    """The records of one source, as often as asked for."""

    kind: str
    notes: tuple[str, ...]

    def __iter__(self) -> Iterator[Record | Rejection]: ...


FILE_KINDS: dict[str, Callable[[Path, Wanted], Rows]] = {
    ".csv": CsvRows,
    ".tsv": CsvRows,
    ".jsonl": JsonlRows,
    ".ndjson": JsonlRows,
    ".json": JsonlRows,
}


class Source:
    """The tickets of one day, and the rows that cannot be used, in the order of the source.

    Each iteration reads the source anew, in constant memory, and may raise UserError where the source breaks off.
    `key` (at most 128 characters) is the same whenever the same source is read again, on whatever day. `notes` and
    `outside_day` are those of the latest iteration.
    """

    def __init__(
        self, rows: Rows, *, key: str, where: str, day: Day, picks_by_date: bool, urgent: Urgent | None
    ) -> None:
        self.key = key if len(key) <= KEY_LIMIT_CHARACTERS else hashlib.sha256(key.encode()).hexdigest()
        self._rows = rows
        self._where = where
        self._day = day
        self._picks_by_date = picks_by_date
        self._urgent = urgent
        self._reading = self._begun()

    def describe(self) -> str:
        """The source as a person knows it, without secrets."""
        return f"{self._where} ({self._rows.kind})"

    @property
    def notes(self) -> tuple[str, ...]:
        """What a person should know of the latest iteration: encoding, separator, what was mended and how often."""
        return (*self._rows.notes, *self._reading.notes)

    @property
    def outside_day(self) -> int:
        """How many rows were left out because they were created on another day."""
        return self._reading.outside_day

    def __iter__(self) -> Iterator[Ticket | Rejection]:
        reading = self._reading = self._begun()
        for row in self._rows:
            made = row if isinstance(row, Rejection) else reading.ticket(row)
            if made is not None:
                yield made

    def _begun(self) -> Reading:
        return Reading(self._day, picks_by_date=self._picks_by_date, urgent=self._urgent)


def open_source(
    settings: SourceSettings, day: Day, *, every_row: bool = False, override_path: Path | None = None
) -> Source:
    """The configured source, or the file `override_path`, for the tickets created on `day`.

    `every_row` takes all rows whatever their date. A query that names `:date`, or `:starts_at` and `:ends_at`, picks
    its rows itself. Raises UserError, one line, when there is no source or it cannot be used at all; nothing is read
    beyond the first lines.
    """
    if override_path is not None:
        return _file(settings, day, every_row, override_path, os.path.realpath(override_path))
    if settings.path is not None:
        path = Path(settings.path.replace(DATE_FIELD, day.date.isoformat()))
        return _file(settings, day, every_row, path, os.path.realpath(settings.path))
    if settings.url is not None and settings.query is not None:
        return _query(settings, day, every_row, reveal(settings.url), settings.query)
    raise UserError("there is no source of tickets: name a file with --input, or set source.path in tickets-batch.toml")


def _file(settings: SourceSettings, day: Day, every_row: bool, path: Path, key: str) -> Source:
    suffix = Path(path.name.lower().removesuffix(".gz")).suffix
    rows_of = FILE_KINDS.get(suffix)
    if rows_of is None:
        with open_lines(path):
            pass  # what is wrong with the file itself says more than its name
        raise UserError(
            f"{path} has no known ending: name it .csv, .tsv or .jsonl by what it holds (each also with .gz)"
        )
    rows = rows_of(path, Wanted.of(settings, needs_created_at=not every_row))
    return Source(rows, key=key, where=str(path), day=day, picks_by_date=not every_row, urgent=settings.urgent)


def _query(settings: SourceSettings, day: Day, every_row: bool, url: str, query: str) -> Source:
    picks_by_date = not every_row and not selects_day(query)
    rows = SqlRows(url, query, Wanted.of(settings, needs_created_at=picks_by_date), day)
    key = identity(url, query)
    return Source(rows, key=key, where=rows.where, day=day, picks_by_date=picks_by_date, urgent=settings.urgent)
