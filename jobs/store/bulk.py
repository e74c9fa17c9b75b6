"""Many new rows in one go: COPY on PostgreSQL, one prepared statement over all of them on SQLite.

The ids of jobs are taken first, so that the rows of other tables can name them before anything has come back.
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, Table, func, select, text
from sqlalchemy.exc import DBAPIError

from jobs.tables import jobs

SQLITE_CACHE_KIB = 32 * 1024

# the sequence is looked up in a subquery, which runs once, and not for each row
_NEXT_IDS = text(
    "SELECT nextval((SELECT CAST(pg_get_serial_sequence('jobs', 'id') AS regclass))) FROM generate_series(1, :count)"
)


def take_job_ids(connection: Connection, count: int) -> list[int]:
    """So many ids for new jobs, ascending."""
    if connection.dialect.name == "postgresql":
        return sorted(connection.execute(_NEXT_IDS, {"count": count}).scalars())
    # until these are in the table, BEGIN IMMEDIATE keeps every other writer out
    last: int = connection.execute(select(func.coalesce(func.max(jobs.c.id), 0))).scalar_one()
    return list(range(last + 1, last + 1 + count))


def insert_rows(connection: Connection, table: Table, columns: Sequence[str], rows: Iterable[tuple[Any, ...]]) -> None:
    """Insert rows that hold these columns; the others take their defaults. Raises DBAPIError, as a statement does."""
    names = ", ".join(columns)
    if connection.dialect.name == "postgresql":
        _copy(connection, f"COPY {table.name} ({names}) FROM STDIN", rows)
        return
    # ids come in no order: without room for its pages their index is read and written over and over
    connection.exec_driver_sql(f"PRAGMA cache_size = -{SQLITE_CACHE_KIB}")
    places = ", ".join("?" * len(columns))
    listed = [tuple(_plain(value) for value in row) for row in rows]
    connection.exec_driver_sql(f"INSERT INTO {table.name} ({names}) VALUES ({places})", listed)  # noqa: S608


def _copy(connection: Connection, statement: str, rows: Iterable[tuple[Any, ...]]) -> None:
    driver: Any = connection.dialect.loaded_dbapi
    raw: Any = connection.connection.driver_connection
    try:
        with raw.cursor() as cursor, cursor.copy(statement) as copy:
            for row in rows:
                copy.write_row(row)
    except driver.Error as error:  # SQLAlchemy does not see what it has not sent
        is_lost = connection.dialect.is_disconnect(error, raw, None)
        if is_lost:
            connection.invalidate(error)
        raise DBAPIError.instance(
            statement, None, error, driver.Error, connection_invalidated=is_lost, dialect=connection.dialect
        ) from error


def _plain(value: Any) -> Any:
    """An instant as SQLAlchemy writes it on SQLite, which compares them as text."""
    return value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f") if isinstance(value, datetime) else value
