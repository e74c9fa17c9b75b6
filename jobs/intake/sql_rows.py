"""The rows of a SQL query, streamed with a cursor on the database's side."""

import hashlib
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import URL, Engine, TextClause, create_engine, event, make_url, text
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError, OperationalError, SQLAlchemyError
from sqlalchemy.pool import NullPool

from jobs.days import Day
from jobs.intake.columns import Positions, Wanted, positions
from jobs.intake.reading import Record
from tickets_batch.errors import UserError

ROWS_AT_A_TIME = 1000
CONNECT_SECONDS = 10
PASSWORDS = ("password", "passwd", "sslpassword")  # where a URL's options may hold one
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
        self._engine = _engine(url)
        self._query = _bound(query, day, as_text=self._engine.dialect.name == "sqlite")
        self._wanted = wanted
        self.notes: tuple[str, ...] = ()
        with _errors_explained(self.where), self._engine.connect():
            pass  # reachable, or one clear line before anything is made

    @property
    def where(self) -> str:
        """The database without its password."""
        return self._engine.url.difference_update_query(PASSWORDS).render_as_string(hide_password=True)

    def __iter__(self) -> Iterator[Record]:
        with (
            _errors_explained(self.where),
            self._engine.connect() as connection,
            connection.execution_options(yield_per=ROWS_AT_A_TIME).execute(self._query) as rows,
        ):
            if not rows.returns_rows:
                raise UserError("source.query gives no rows: write a SELECT")
            names = list(rows.keys())
            places = positions(self._wanted, names)
            self._wanted.refuse_missing("source.query", places.by_part, names)
            for number, row in enumerate(rows, 1):
                yield _record(number, row, places)


def selects_day(query: str) -> bool:
    """Whether a query picks the rows of the day itself: it names `:date`, or both `:starts_at` and `:ends_at`."""
    named = _parameters(text(query))
    return "date" in named or {"starts_at", "ends_at"} <= named


def identity(url: str, query: str) -> str:
    """The database without password and options, and a short hash of the query without regard to white space."""
    full = _url(url)
    options = {name: value for name, value in full.query.items() if name in WHERE_IT_IS}
    bare = URL.create(full.drivername, full.username, None, full.host, full.port, full.database, options)
    return f"{bare.render_as_string()}#{hashlib.sha256(' '.join(query.split()).encode()).hexdigest()[:16]}"


def _record(number: int, row: Sequence[object], places: Positions) -> Record:
    parts = {
        part: next((row[place] for place in where if row[place] is not None), None)
        for part, where in places.by_part.items()
    }
    return Record.of(number, parts)


def _url(url: str) -> URL:
    try:
        return make_url(url)
    except (ArgumentError, ValueError) as error:
        raise UserError(
            'source.url is not a database URL; write for example "postgresql+psycopg://user@host/db"'
        ) from error


def _engine(url: str) -> Engine:
    parsed = _url(url)
    is_sqlite = parsed.get_backend_name() == "sqlite"
    if is_sqlite and not Path(parsed.database or "").is_file():  # SQLite would make an empty one
        raise UserError(f"source.url: there is no database file {parsed.database or '(no path given)'}")
    patience = {"connect_timeout": CONNECT_SECONDS} if parsed.get_backend_name() == "postgresql" else {}
    try:
        engine = create_engine(parsed, poolclass=NullPool, connect_args=patience)
    except NoSuchModuleError as error:
        raise UserError(f'source.url: there is no database driver "{parsed.drivername}"') from error
    except ModuleNotFoundError as error:
        raise UserError(f"source.url: {parsed.drivername} needs the Python package {error.name}: install it") from error
    if is_sqlite:
        event.listen(engine, "connect", _read_broken_text)
    return engine


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


@contextmanager
def _errors_explained(where: str) -> Iterator[None]:
    try:
        yield
    except DBAPIError as error:
        what = (
            "cannot reach"
            if isinstance(error, OperationalError) and error.statement is None
            else "source.query failed on"
        )
        raise UserError(f"{what} {where}: {str(error.orig).strip().splitlines()[0]}") from error
    except SQLAlchemyError as error:
        raise UserError(f"source.query failed on {where}: {str(error).splitlines()[0]}") from error
