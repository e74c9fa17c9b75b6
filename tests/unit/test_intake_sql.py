"""A SQL query as a source, on real databases."""

import sqlite3
import tracemalloc
from datetime import UTC, datetime
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

from jobs.intake.source import open_source
from jobs.ticket import Ticket
from tests.support.databases import PostgreSQL
from tests.support.intake import AT_NOON, DAY, Read, read, refused
from tickets_batch.settings import Columns, Secret
from tickets_batch.settings import Source as SourceSettings

ALL = "SELECT * FROM tickets ORDER BY id"


@pytest.fixture
def sqlite(tmp_path: Path) -> str:
    path = tmp_path / "helpdesk.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE tickets (id INTEGER, created_at TEXT, subject TEXT, body TEXT, day TEXT)")
        connection.executemany(
            "INSERT INTO tickets VALUES (?, ?, ?, ?, ?)",
            [
                (1, "2026-11-29 22:59:59", "yesterday", "b", "2026-11-29"),
                (2, "2026-11-29 23:00:00", "first", "b", "2026-11-30"),
                (3, "2026-11-30 11:00:00", None, "<p>noon</p>", "2026-11-30"),
                (4, "2026-11-30 22:59:59", "last", None, "2026-11-30"),
                (5, "2026-11-30 23:00:00", "tomorrow", "b", "2026-12-01"),
            ],
        )
    connection.close()
    return f"sqlite:///{path}"


def run(url: str, query: str, *, every_row: bool = False, columns: Columns | None = None) -> Read:
    settings = SourceSettings(url=url, query=query, columns=columns or Columns())
    return read(open_source(settings, DAY, every_row=every_row))


def ids(seen: Read) -> list[str]:
    return [ticket.custom_id for ticket in seen.tickets]


def test_the_rows_of_a_query_by_the_mapped_columns(sqlite: str) -> None:
    seen = run(sqlite, "SELECT id AS k, subject, body AS words FROM tickets WHERE day = :date ORDER BY id",
               columns=Columns(id="k", body="words"))  # fmt: skip
    assert seen.tickets == [
        Ticket("2", "first", "b", None, 0, 1),
        Ticket("3", "", "noon", None, 0, 2),
        Ticket("4", "last", "", None, 0, 3),
    ]


def test_the_bounds_of_the_day_are_instants(sqlite: str) -> None:
    seen = run(sqlite, "SELECT * FROM tickets WHERE created_at >= :starts_at AND created_at < :ends_at ORDER BY id")
    assert ids(seen) == ["2", "3", "4"]
    assert seen.outside_day == 0


def test_a_query_without_parameters_is_filtered_by_the_dates_of_its_rows(sqlite: str) -> None:
    seen = run(sqlite, "SELECT id, subject, body, created_at || 'Z' AS created_at FROM tickets ORDER BY id")
    assert ids(seen) == ["2", "3", "4"]
    assert seen.tickets[1].created_at == AT_NOON
    assert seen.outside_day == 2


def test_one_bound_alone_does_not_pick_the_day(sqlite: str) -> None:
    rows = "SELECT id, body, created_at || 'Z' AS created_at FROM tickets"
    query = f"{rows} WHERE created_at >= :starts_at AND id <> 4 ORDER BY id"
    seen = run(sqlite, query)
    assert (ids(seen), seen.outside_day) == (["2", "3"], 1)


def test_every_row_needs_neither_parameters_nor_dates(sqlite: str) -> None:
    assert ids(run(sqlite, "SELECT id, body FROM tickets WHERE body IS NOT NULL ORDER BY id", every_row=True)) == [
        "1", "2", "3", "5",
    ]  # fmt: skip


def test_rows_that_cannot_be_used_are_listed_by_their_place(sqlite: str) -> None:
    seen = run(sqlite, "SELECT nullif(id, 2) AS id, subject, body FROM tickets WHERE day = :date ORDER BY tickets.id")
    assert ids(seen) == ["3", "4"]
    assert seen.reasons == {1: "the id is empty"}


def test_a_text_that_is_not_utf_8_ends_nothing(sqlite: str) -> None:
    seen = run(sqlite, "SELECT id, CAST(x'61E462' AS TEXT) AS body FROM tickets WHERE day = :date ORDER BY id")
    assert set(seen.bodies.values()) == {"a\ufffdb"}


class TestErrors:
    def test_missing_columns(self, sqlite: str) -> None:
        with refused('source.query: no column "id" for columns.id (nearest: "ticket_id")', "ticket_id, body"):
            run(sqlite, "SELECT id AS ticket_id, body FROM tickets WHERE day = :date")

    def test_neither_dates_nor_parameters(self, sqlite: str) -> None:
        with refused('no column "created_at" for columns.created_at', "--all"):
            run(sqlite, "SELECT id, body FROM tickets")

    def test_an_unknown_parameter(self, sqlite: str) -> None:
        with refused("source.query has the parameter :day; there are only :date, :starts_at and :ends_at"):
            run(sqlite, "SELECT * FROM tickets WHERE day = :day")

    def test_wrong_sql(self, sqlite: str) -> None:
        with refused("source.query failed on sqlite:///", "no such table: missing"):
            run(sqlite, "SELECT * FROM missing", every_row=True)

    def test_a_statement_that_gives_no_rows_changes_nothing(self, sqlite: str) -> None:
        with refused("source.query gives no rows: write a SELECT"):
            run(sqlite, "DELETE FROM tickets", every_row=True)
        assert len(run(sqlite, ALL, every_row=True).tickets) == 5

    def test_a_missing_file_is_not_made(self, tmp_path: Path) -> None:
        with refused(f"source.url: there is no database file {tmp_path}/none.db"):
            run(f"sqlite:///{tmp_path}/none.db", ALL)
        assert not (tmp_path / "none.db").exists()

    @pytest.mark.parametrize("url", ["nonsense", "postgresql+psycopg://u:secret@h:port/db", ""])
    def test_no_url(self, url: str) -> None:
        with refused("source.url is not a database URL; write for example"):
            run(url, ALL)

    def test_no_such_driver(self) -> None:
        with refused('source.url: there is no database driver "clay"'):
            run("clay://u:secret@h/db", ALL)

    def test_a_driver_that_is_not_installed(self) -> None:
        with refused("source.url: mysql+pymysql needs the Python package pymysql: install it"):
            run("mysql+pymysql://u:secret@h/db", ALL)

    def test_an_unreachable_server_is_named_without_its_password(self) -> None:
        with refused("cannot reach postgresql+psycopg://u:***@127.0.0.1:1/db: ") as caught:
            run("postgresql+psycopg://u:secret@127.0.0.1:1/db", ALL)
        assert "secret" not in str(caught)


class TestIdentity:
    def key(self, url: str, query: str) -> str:
        return open_source(SourceSettings(url=url, query=query), DAY).key

    def test_is_the_database_and_the_query_whatever_its_layout(self, sqlite: str) -> None:
        key = self.key(sqlite, ALL)
        assert key == self.key(sqlite, "SELECT *\n  FROM tickets\n  ORDER BY id\n")
        assert key != self.key(sqlite, "SELECT * FROM tickets")

    def test_holds_no_password(self, postgresql: PostgreSQL, monkeypatch: pytest.MonkeyPatch) -> None:
        url = postgresql.url("postgres").replace("postgres@", "postgres:secret@") + "&connect_timeout=5"
        monkeypatch.setenv("HELPDESK_URL", url)
        source = open_source(SourceSettings(url=Secret(env="HELPDESK_URL"), query=ALL), DAY)
        assert source.key.startswith("postgresql+psycopg://postgres@/postgres?host=")
        assert "connect_timeout" not in source.key
        assert "secret" not in source.key + source.describe()


class TestPostgreSQL:
    def test_values_of_its_types(self, postgresql: PostgreSQL) -> None:
        seen = run(
            postgresql.url("postgres"),
            """
            SELECT 'b5f7e7a0-0000-4000-8000-000000000001'::uuid AS id, 12.50::numeric AS subject, 'x'::text AS body,
                   '2026-11-30 12:00:00+01'::timestamptz AS created_at, 3 AS priority
            UNION ALL
            SELECT 'b5f7e7a0-0000-4000-8000-000000000002', NULL, 'y', '2026-11-30 06:00:00-05', NULL
            """,
            columns=Columns(priority="priority"),
        )
        assert seen.tickets == [
            Ticket("b5f7e7a0-0000-4000-8000-000000000001", "12.50", "x", AT_NOON, 3, 1),
            Ticket("b5f7e7a0-0000-4000-8000-000000000002", "", "y", AT_NOON, 0, 2),
        ]

    def test_a_time_without_zone_is_one_of_the_settings(self, postgresql: PostgreSQL) -> None:
        query = "SELECT 1 AS id, 'x' AS body, timestamp '2026-11-30 12:00:00' AS created_at"
        assert run(postgresql.url("postgres"), query).tickets[0].created_at == AT_NOON

    def test_the_parameters_have_their_types(self, postgresql: PostgreSQL) -> None:
        query = """
            SELECT 1 AS id, :date - 1 || ' ' || (:ends_at - :starts_at) || ' ' || '12:30:00' AS body,
                   :starts_at AS created_at
        """
        seen = run(postgresql.url("postgres"), query)
        assert seen.bodies == {"1": "2026-11-29 1 day 12:30:00"}
        assert seen.tickets[0].created_at == datetime(2026, 11, 29, 23, tzinfo=UTC)

    def test_a_failure_half_way_is_one_line(self, postgresql: PostgreSQL) -> None:
        query = "SELECT n AS id, (10 / (5000 - n))::text AS body FROM generate_series(1, 10000) n"
        with refused("source.query failed on postgresql+psycopg://postgres@/postgres", "division by zero"):
            run(postgresql.url("postgres"), query, every_row=True)

    def test_a_large_result_is_streamed_in_constant_memory(self, postgresql: PostgreSQL) -> None:
        query = "SELECT n AS id, repeat('word ', 400) AS body FROM generate_series(1, 20000) n"
        source = open_source(SourceSettings(url=postgresql.url("postgres"), query=query), DAY, every_row=True)
        tracemalloc.start()
        try:
            assert sum(isinstance(row, Ticket) for row in source) == 20_000  # 40 MB in all
            _, peak_bytes = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak_bytes < 12_000_000

    def test_leaves_no_connection_behind(self, postgresql: PostgreSQL) -> None:
        url = postgresql.url("postgres")
        source = open_source(
            SourceSettings(url=url + "&application_name=intake", query="SELECT 1 AS id, 'x' AS body"),
            DAY,
            every_row=True,
        )
        rows = iter(source)
        next(rows)
        rows.close()  # type: ignore[attr-defined]
        engine = create_engine(url)
        with engine.connect() as connection:
            left = connection.scalar(text("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'intake'"))
        engine.dispose()
        assert left == 0
