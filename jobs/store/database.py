"""The connection to the database, and its transactions.

SQLite runs in WAL mode with `synchronous=FULL`: like on PostgreSQL, what is committed survives a killed process and a
power cut. Every writing transaction there begins with BEGIN IMMEDIATE, so it never fails half-way for a lock.
Transactions are short: nothing waits for a model, a file or a person inside one.
"""

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Self, TypeVar

from sqlalchemy import URL, Connection, Dialect, Engine, create_engine, event, func, make_url, select
from sqlalchemy.exc import ArgumentError, DBAPIError
from tenacity import (
    Retrying,
    retry_if_exception,
    retry_if_exception_type,
    stop_after_delay,
    wait_random,
    wait_random_exponential,
)

from jobs.store.clock import Clock
from jobs.store.errors import StoreConflict, StoreUnavailable, explained
from tickets_batch.errors import SettingsError

LOCK_SECONDS = 30.0  # how long a transaction waits for another program's on SQLite
LOCK_LOOK_SECONDS = 0.001  # how often it looks whether that one is over; SQLite itself soon waits a hundred times that
CONNECT_SECONDS = 5
PING_SECONDS = 5.0  # for the ping of a connection that was kept: a new one is not waited for longer either
# A client that is cut off inside a transaction holds locks for which all workers of a batch may wait, and so may the
# renewal of their leases: less than two thirds of a lease of 15 s.
IDLE_IN_TRANSACTION_MS = 8_000

T = TypeVar("T")


class Database:
    """One database, shared by the threads of one process; open it after a fork, never before."""

    def __init__(self, url: URL, engine: Engine, clock: Clock | Callable[[], datetime] | None) -> None:
        self.url = url
        self.dialect = engine.dialect.name
        self._engine = engine
        self._reader = engine.execution_options(reads_only=True)
        if clock is None or isinstance(clock, Clock):
            self._clock = clock or Clock(self._read_time)
            self._now, self._reread, self._at_least = self._clock.now, self._clock.reread, self._clock.at_least
        else:
            self._clock = Clock(clock)
            self._now = self._reread = self._at_least = clock

    @classmethod
    def open(cls, url: str, clock: Clock | Callable[[], datetime] | None = None) -> Self:
        """The database at `url`; nothing is connected yet. `clock` stands for the database's own time.

        Raises SettingsError when the URL cannot be used.
        """
        parsed = parse(url)
        return cls(parsed, _engine(parsed), clock)

    @contextmanager
    def begin(self) -> Iterator[Connection]:
        """A writing transaction: committed at the end, rolled back on any error.

        Raises StoreUnavailable, StoreConflict.
        """
        with self._explaining(), self._engine.begin() as connection:
            yield connection

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A reading transaction. Raises StoreUnavailable."""
        with self._explaining(), self._reader.connect() as connection:
            yield connection

    def attempt(self, call: Callable[[], T], seconds: float = 30.0) -> T:
        """Calls `call`, again and again for up to `seconds` while the database is away or undoes its transactions.

        For calls that may be repeated: a commit whose answer was lost is made a second time.
        """
        retrying = Retrying(
            retry=retry_if_exception_type((StoreUnavailable, StoreConflict)),
            wait=wait_random_exponential(multiplier=0.1, max=2.0),
            stop=stop_after_delay(seconds),
            reraise=True,
        )
        return retrying(call)

    def now(self) -> datetime:
        """The database's time; it goes on evenly when the wall clock is stepped. Raises StoreUnavailable."""
        return self._now()

    def reread(self) -> datetime:
        """The same, read at this moment: for who judges what others have written. Raises StoreUnavailable."""
        return self._reread()

    def at_least(self) -> datetime:
        """The time for what must not happen early; for half a minute after a step of the clock, the earlier time.

        Raises StoreUnavailable.
        """
        return self._at_least()

    @property
    def is_settled(self) -> bool:
        """False for half a minute after the database's clock was seen to step: no lease is judged meanwhile."""
        return self._clock.is_settled

    @property
    def is_clock_known(self) -> bool:
        """True once the clock was watched for half a minute without a step: an impossible lease is a dead one's."""
        return self._clock.is_known

    def dispose(self) -> None:
        """Close the connections."""
        self._engine.dispose()

    @contextmanager
    def _explaining(self) -> Iterator[None]:
        try:
            yield
        except (DBAPIError, sqlite3.Error) as error:
            if said := explained(error, self.url):
                raise said from error
            raise

    def _read_time(self) -> datetime:
        if self.dialect == "sqlite":  # its time is this machine's
            return datetime.now(UTC)
        with self.read() as connection:
            time: datetime = connection.execute(select(func.clock_timestamp())).scalar_one()
        return time.astimezone(UTC)


def parse(url: str) -> URL:
    """The URL with its driver. Raises SettingsError when it is none, or names a database that is not supported."""
    try:
        parsed = make_url(url)
    except ArgumentError:
        raise SettingsError(
            "database_url is not a database URL: write sqlite:///path/to/file.db or postgresql+psycopg://user@host/name"
        ) from None
    if parsed.drivername in ("postgres", "postgresql"):
        parsed = parsed.set(drivername="postgresql+psycopg")
    if parsed.drivername not in ("sqlite", "sqlite+pysqlite", "postgresql+psycopg"):
        raise SettingsError(
            f"database_url begins with {parsed.drivername}://, which is not supported: "
            "write sqlite:///path/to/file.db or postgresql+psycopg://user@host/name"
        )
    if parsed.get_backend_name() == "sqlite" and parsed.database in (None, "", ":memory:"):
        raise SettingsError(
            "database_url names no file: several processes share the database, so it cannot be in memory"
        )
    return parsed


def _engine(url: URL) -> Engine:
    if url.get_backend_name() == "sqlite":
        engine = create_engine(url, connect_args={"timeout": LOCK_SECONDS}, pool_size=4, max_overflow=28)
        event.listen(engine, "connect", _prepare_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
        return engine
    keepalive = {"keepalives": 1, "keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3}
    engine = create_engine(
        url,
        connect_args={
            "connect_timeout": CONNECT_SECONDS,
            "application_name": "tickets-batch",
            "tcp_user_timeout": 20_000,
            **keepalive,
        },
        pool_size=4,
        max_overflow=28,
        pool_pre_ping=True,
    )
    event.listen(engine, "do_connect", _connect_postgresql)
    event.listen(engine, "connect", _prepare_postgresql)
    event.listen(engine, "checkin", _bound_ping)
    event.listen(engine, "checkout", _bound_statements)  # comes after the ping
    return engine


def _prepare_sqlite(dbapi_connection: Any, _: object) -> None:
    dbapi_connection.isolation_level = None  # the driver begins nothing by itself: see _begin_sqlite
    for pragma in ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON"):
        dbapi_connection.execute(f"PRAGMA {pragma}").close()


def _begin_sqlite(connection: Connection) -> None:
    if connection.get_execution_options().get("reads_only", False):
        connection.exec_driver_sql("BEGIN")
        return
    driver = connection.connection.driver_connection
    assert isinstance(driver, sqlite3.Connection)  # noqa: S101 - for the type checker
    retrying = Retrying(
        retry=retry_if_exception(_is_locked),
        wait=wait_random(LOCK_LOOK_SECONDS / 2, 1.5 * LOCK_LOOK_SECONDS),
        stop=stop_after_delay(LOCK_SECONDS),
        reraise=True,
    )
    _wait_for_locks(driver, 0.0)
    try:
        retrying(driver.execute, "BEGIN IMMEDIATE")
    finally:
        _wait_for_locks(driver, LOCK_SECONDS)


def _wait_for_locks(driver: sqlite3.Connection, seconds: float) -> None:
    """So long SQLite itself waits from now on, in each of this connection's statements."""
    driver.execute(f"PRAGMA busy_timeout = {seconds * 1000:.0f}").close()


def _is_locked(error: BaseException) -> bool:
    return isinstance(error, sqlite3.OperationalError) and error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY


def _connect_postgresql(_: Dialect, __: object, arguments: Sequence[Any], options: dict[str, Any]) -> Any:
    from jobs.store.silence import BoundedConnection  # only here: with SQLite the driver is not needed

    return BoundedConnection.connect(*arguments, **options)


def _prepare_postgresql(dbapi_connection: Any, _: object) -> None:
    with dbapi_connection.cursor() as cursor:
        cursor.execute(f"SET idle_in_transaction_session_timeout = {IDLE_IN_TRANSACTION_MS}")
        cursor.execute("SET timezone = 'UTC'")
    dbapi_connection.commit()


def _bound_ping(dbapi_connection: Any, _: object) -> None:
    if dbapi_connection is not None:  # it may have broken while it was used
        dbapi_connection.silence_seconds = PING_SECONDS


def _bound_statements(dbapi_connection: Any, _: object, __: object) -> None:
    dbapi_connection.silence_seconds = None
