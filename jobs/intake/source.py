"""Where a day's tickets come from, whatever its form: a CSV or JSONL file, or a SQL query."""

import hashlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from jobs.days import Day
from jobs.intake.columns import Wanted
from jobs.intake.csv_rows import CsvRows
from jobs.intake.decode import open_lines
from jobs.intake.formats import FORMATS, Format
from jobs.intake.json_rows import JsonRows
from jobs.intake.jsonl_rows import JsonlRows
from jobs.intake.latest import LatestRows
from jobs.intake.reading import Reading
from jobs.intake.rows import Rows
from jobs.intake.sql_rows import SqlRows, identity, selects_day
from jobs.ticket import Rejection, Ticket
from tickets_batch.errors import UserError
from tickets_batch.settings import ExportFormat, Urgent, reveal
from tickets_batch.settings import Source as SourceSettings

KEY_LIMIT_CHARACTERS = 128  # what the column for it holds
DATE_FIELD = "{date}"


FILE_KINDS: dict[str, Callable[[Path, Wanted], Rows]] = {
    ".csv": CsvRows,
    ".tsv": CsvRows,
    ".jsonl": JsonlRows,
    ".ndjson": JsonlRows,
    ".json": JsonlRows,
}
NO_BODY = "there is no description in this export: the subjects alone are classified"


class Source:
    """The tickets of one day, and the rows that cannot be used, in the order of the source.

    Each iteration reads the source anew, in constant memory unless the latest versions of its tickets have to be found,
    and may raise UserError where the source breaks off.
    `key` (at most 128 characters) is the same whenever the same source is read again, on whatever day. `notes` and
    `outside_day` are those of the latest iteration.
    """

    def __init__(
        self,
        rows: Rows,
        *,
        key: str,
        where: str,
        day: Day,
        picks_by_date: bool,
        urgent: Urgent | None,
        format: Format | None = None,
    ) -> None:
        self.key = key if len(key) <= KEY_LIMIT_CHARACTERS else hashlib.sha256(key.encode()).hexdigest()
        self._rows = rows
        self._where = where
        self._day = day
        self._picks_by_date = picks_by_date
        self._urgent = urgent
        self._format = format
        self._lacks_bodies = False
        self._reading = self._begun()

    def describe(self) -> str:
        """The source as a person knows it, without secrets."""
        return f"{self._where} ({self._rows.kind})"

    @property
    def notes(self) -> tuple[str, ...]:
        """What a person should know of the latest iteration: encoding, separator, what was mended and how often."""
        lacking = (NO_BODY,) if self._lacks_bodies else ()
        return (*self._rows.notes, *self._reading.notes, *lacking)

    @property
    def outside_day(self) -> int:
        """How many rows were left out because they were created on another day."""
        return self._reading.outside_day

    def __iter__(self) -> Iterator[Ticket | Rejection]:
        reading = self._reading = self._begun()
        with_body = without = 0
        for row in self._rows:
            if not isinstance(row, Rejection) and self._format is not None:
                row = self._format.read(row)
            made = row if isinstance(row, Rejection) else reading.ticket(row)
            if isinstance(made, Ticket):
                with_body, without = (with_body + 1, without) if made.body else (with_body, without + 1)
            if made is not None:
                yield made
        self._lacks_bodies = self._format is not None and without > 0 and not with_body

    def _begun(self) -> Reading:
        return Reading(self._day, picks_by_date=self._picks_by_date, urgent=self._urgent)


def open_source(
    settings: SourceSettings,
    day: Day,
    *,
    every_row: bool = False,
    override_path: Path | None = None,
    override_format: ExportFormat | None = None,
) -> Source:
    """The configured source, or the file `override_path`, for the tickets created on `day`.

    `every_row` takes all rows whatever their date. A query that names `:date`, or `:starts_at` and `:ends_at`, picks
    its rows itself. Raises UserError, one line, when there is no source or it cannot be used at all; nothing is read
    beyond the first lines.
    """
    if override_format is not None:
        settings = settings.model_copy(update={"format": override_format})
    if override_path is not None:
        return _file(settings, day, every_row, override_path, os.path.realpath(override_path))
    if settings.path is not None:
        path = Path(settings.path.replace(DATE_FIELD, day.date.isoformat()))
        return _file(settings, day, every_row, path, os.path.realpath(settings.path))
    if override_format is not None:
        raise UserError(f"--format {override_format} is for a file: name one with --input, or set source.path")
    if settings.url is not None and settings.query is not None:
        return _query(settings, day, every_row, reveal(settings.url), settings.query)
    raise UserError("there is no source of tickets: name a file with --input, or set source.path in tickets-batch.toml")


def _file(settings: SourceSettings, day: Day, every_row: bool, path: Path, key: str) -> Source:
    rows_of = FILE_KINDS.get(Path(path.name.lower().removesuffix(".gz")).suffix)
    if rows_of is None:
        with open_lines(path):
            pass  # what is wrong with the file itself says more than its name
        raise UserError(
            f"{path} has no known ending: name it .csv, .tsv or .jsonl by what it holds (each also with .gz)"
        )
    if settings.format is not None and rows_of is JsonlRows:
        rows_of = JsonRows
    wanted = Wanted.of(settings, needs_created_at=not every_row)
    rows = _latest(rows_of(path, wanted), wanted, day)
    return Source(
        rows,
        key=key,
        where=str(path),
        day=day,
        picks_by_date=not every_row,
        urgent=settings.urgent,
        format=FORMATS[settings.format] if settings.format else None,
    )


def _query(settings: SourceSettings, day: Day, every_row: bool, url: str, query: str) -> Source:
    picks_by_date = not every_row and not selects_day(query)
    wanted = Wanted.of(settings, needs_created_at=picks_by_date)
    rows = SqlRows(url, query, wanted, day)
    key = identity(url, query)
    found = _latest(rows, wanted, day)
    return Source(found, key=key, where=rows.where, day=day, picks_by_date=picks_by_date, urgent=settings.urgent)


def _latest(rows: Rows, wanted: Wanted, day: Day) -> Rows:
    return LatestRows(rows, day.zone) if "updated_at" in wanted.names else rows
