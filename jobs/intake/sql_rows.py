"""The rows of a SQL query, streamed with a cursor on the database's side."""

import hashlib
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager

from sqlalchemy import URL, TextClause, event, text

from jobs.days import Day
from jobs.intake.columns import Positions, Wanted, positions
from jobs.intake.reading import Record
from jobs.user_database import engine_of, errors_explained, parsed, shown
from tickets_batch.errors import UserError

KEY = "source.url"
ROWS_AT_A_TIME = 1000
WHERE_IT_IS = ("host", "port", "service", "unix_socket")  # the options that tell one database from another
PARAMETERS = frozenset({"date", "starts_at", "ends_at"})


class SqlRows:
    """The records of one query; each reading runs it again.

    `:date`, `:starts_at` and `:ends_at` are the day as a date and as two instants; SQLite, which has no such types,
    gets them as the texts `YYYY-MM-DD` and `YYYY-MM-DD HH:MM:SS` in UTC. Raises UserError at construction when the
    database cannot be reached or the query has another parameter, and while iterating when the query fails or lacks a
    required column.
    """

    kind = "SQL"

    def __init__(self, url: str, query: str, wanted: Wanted, day: Day) -> None:
        self._engine = engine_of(url, KEY)
        if self._engine.dialect.name == "sqlite":
            event.listen(self._engine, "connect", _read_broken_text)
        self._query = _bound(query, day, as_text=self._engine.dialect.name == "sqlite")
        self._wanted = wanted
        self.notes: tuple[str, ...] = ()
        with self._errors_explained(), self._engine.connect():
            pass  # reachable, or one clear line before anything is made

    @property
    def where(self) -> str:
        """The database without its password."""
        return shown(self._engine.url)

    def __iter__(self) -> Iterator[Record]:
        with (
            self._errors_explained(),
            self._engine.connect() as connection,
            connection.execution_options(yield_per=ROWS_AT_A_TIME).execute(self._query) as rows,
        ):
            if not rows.returns_rows:
                raise UserError("source.query gives no rows: write a SELECT")
            names = list(rows.keys())
            places = positions(self._wanted, names)
            self._wanted.refuse_missing("source.query", places.by_part, names)
            self.notes = self._wanted.note_missing(places.by_part, names)
            for number, row in enumerate(rows, 1):
                yield _record(number, row, places)

    def _errors_explained(self) -> AbstractContextManager[None]:
        return errors_explained(self._engine.url, "source.query")


def selects_day(query: str) -> bool:
    """Whether a query picks the rows of the day itself: it names `:date`, or both `:starts_at` and `:ends_at`."""
    named = _parameters(text(query))
    return "date" in named or {"starts_at", "ends_at"} <= named


def identity(url: str, query: str) -> str:
    """The database without password and options, and a short hash of the query without regard to white space."""
    full = parsed(url, KEY)
    options = {name: value for name, value in full.query.items() if name in WHERE_IT_IS}
    bare = URL.create(full.drivername, full.username, None, full.host, full.port, full.database, options)
    return f"{bare.render_as_string()}#{hashlib.sha256(' '.join(query.split()).encode()).hexdigest()[:16]}"


def _record(number: int, row: Sequence[object], places: Positions) -> Record:
    parts = {
        part: next((row[place] for place in where if row[place] is not None), None)
        for part, where in places.by_part.items()
    }
    return Record.of(number, parts)


def _read_broken_text(connection: sqlite3.Connection, _: object) -> None:
    """One text that is not UTF-8 must not end the reading of all others."""
    connection.text_factory = lambda raw: raw.decode("utf-8", "replace")


def _bound(query: str, day: Day, *, as_text: bool) -> TextClause:
    clause = text(query)
    named = _parameters(clause)
    if unknown := sorted(named - PARAMETERS):
        raise UserError(
            f"source.query has the parameter :{unknown[0]}; there are only :date, :starts_at and :ends_at"
            " (write \\: where a colon is meant)"
        )
    values: dict[str, object] = {"date": day.date, "starts_at": day.starts_at, "ends_at": day.ends_at}
    if as_text:
        values = {name: str(value).removesuffix("+00:00") for name, value in values.items()}
    return clause.bindparams(**{name: values[name] for name in named})


def _parameters(clause: TextClause) -> set[str]:
    return set(clause.compile().params)
