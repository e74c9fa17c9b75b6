"""Results into a table of the user's: one row per ticket, inserted or updated, and safe to repeat.

A ticket is found by its id. A result that is older than the one in the table changes nothing, and neither does one
without a label where there is one: so neither a second run, nor an old batch written again, nor a ticket that failed
this time takes a label away.
"""

from collections.abc import Iterable
from contextlib import AbstractContextManager
from datetime import datetime
from itertools import islice

from sqlalchemy import Column, Connection, Insert, MetaData, Table, and_, inspect, or_
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import NoSuchTableError
from sqlalchemy.types import NullType

from jobs.export import instant_in_words
from jobs.store.results import ResultRow
from jobs.user_database import engine_of, errors_explained, shown
from tickets_batch.errors import UserError
from tickets_batch.settings import Sink as SinkSettings
from tickets_batch.settings import reveal

KEY = "sink.url"
ROWS_AT_A_TIME = 1000
SUPPORTED = ("postgresql", "sqlite")
TYPES = {
    **dict.fromkeys(("truncated", "reused"), "BOOLEAN"),
    **dict.fromkeys(("prompt_tokens", "completion_tokens", "attempts", "yields"), "INTEGER"),
    "latency_seconds": "DOUBLE PRECISION",
    "finished_at": "TIMESTAMP WITH TIME ZONE",
}


class Sink:
    """One table of the user's. Raises UserError at construction when its URL cannot be used."""

    def __init__(self, settings: SinkSettings) -> None:
        self._engine = engine_of(reveal(settings.url), KEY)
        if (kind := self._engine.dialect.name) not in SUPPORTED:
            raise UserError(f"{KEY}: results are written to PostgreSQL and SQLite only, not to {kind}")
        self._columns = {str(field): name for field, name in settings.columns.items()}
        self._schema, _, self._name = settings.table.rpartition(".")
        self._settings = settings

    @property
    def where(self) -> str:
        """The table as a person knows it, without secrets."""
        return f"{self._settings.table} in {shown(self._engine.url)}"

    def check(self) -> None:
        """Raises UserError, one line with what to do, when the table cannot take any results."""
        with self._errors_explained(), self._engine.connect() as connection:
            self._check(connection)

    def write(self, rows: Iterable[ResultRow], batch_id: str) -> int:
        """Write the results of the tickets that have ended, all or none; how many. Raises UserError."""
        insert, count = self._insert(), 0
        ended = (self._values(row, batch_id) for row in rows if row.state.is_final)
        with self._errors_explained(), self._engine.begin() as connection:
            if self._engine.dialect.name == "postgresql":  # for a column that keeps no zone
                connection.exec_driver_sql("SET LOCAL TIME ZONE 'UTC'")
            self._check(connection)
            while some := list(islice(ended, ROWS_AT_A_TIME)):
                connection.execute(insert, some)
                count += len(some)
        return count

    def _values(self, row: ResultRow, batch_id: str) -> dict[str, object]:
        values = (
            (name, batch_id if field == "batch_id" else getattr(row, field)) for field, name in self._columns.items()
        )
        return {name: self._storable(value) for name, value in values}

    def _storable(self, value: object) -> object:
        """SQLite has no type for an instant: it gets the text that the CSV has, whose order is that of time."""
        if isinstance(value, datetime) and self._engine.dialect.name == "sqlite":
            return instant_in_words(value)
        return value

    def _insert(self) -> Insert:
        """INSERT, or UPDATE where the id is there; untyped, so the database makes of a text what a column needs."""
        columns = [Column(name, NullType()) for name in self._columns.values()]
        table = Table(self._name, MetaData(), *columns, schema=self._schema or None)
        is_sqlite = self._engine.dialect.name == "sqlite"
        insert: postgresql.Insert | sqlite.Insert = sqlite.insert(table) if is_sqlite else postgresql.insert(table)
        key, may = self._columns["custom_id"], []
        if label := self._columns.get("label"):
            may.append(or_(insert.excluded[label].is_not(None), table.c[label].is_(None)))
        if finished_at := self._columns.get("finished_at"):
            is_newer = table.c[finished_at] <= insert.excluded[finished_at]
            may.append(or_(table.c[finished_at].is_(None), is_newer))
        return insert.on_conflict_do_update(
            index_elements=[table.c[key]],
            set_={name: insert.excluded[name] for name in self._columns.values() if name != key},
            where=and_(*may) if may else None,
        )

    def _check(self, connection: Connection) -> None:
        found, schema, key = inspect(connection), self._schema or None, self._columns["custom_id"]
        try:
            present = [column["name"] for column in found.get_columns(self._name, schema)]
        except NoSuchTableError:
            raise UserError(f"there is no table {self.where}: make it with {self._definition()}") from None
        missing = [name for name in self._columns.values() if name not in present]
        if missing:
            raise UserError(
                f"{self.where} has no column {missing[0]}; it has {', '.join(present)}: name others in sink.columns"
            )
        unique = [
            list(found.get_pk_constraint(self._name, schema)["constrained_columns"]),
            *(list(one["column_names"]) for one in found.get_unique_constraints(self._name, schema)),
            *(list(one["column_names"]) for one in found.get_indexes(self._name, schema) if one["unique"]),
        ]
        if [key] not in unique:
            raise UserError(
                f"{self.where} has no unique key on {key}, by which a ticket is found again: "
                f"CREATE UNIQUE INDEX {self._name}_{key} ON {self._settings.table} ({key})"
            )

    def _definition(self) -> str:
        columns = (f"{name} {TYPES.get(field, 'TEXT')}" for field, name in self._columns.items())
        key = self._columns["custom_id"]
        return f"CREATE TABLE {self._settings.table} ({', '.join(columns)}, PRIMARY KEY ({key}))"

    def _errors_explained(self) -> AbstractContextManager[None]:
        return errors_explained(self._engine.url, f"writing to {self._settings.table}")
