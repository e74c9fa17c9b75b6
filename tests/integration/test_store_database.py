"""Connections: how they fail, what a person then reads, and what is tried again."""

import sqlite3
import threading
import time
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from statistics import median

import pytest
from sqlalchemy import insert, select, text, update
from sqlalchemy.exc import IntegrityError, OperationalError, StatementError

from jobs.store import batches, claims, database, events
from jobs.store.database import Database
from jobs.store.errors import StoreConflict, StoreUnavailable
from jobs.store.events import EventKind
from jobs.tables import events as events_table
from jobs.tables import jobs
from tests.support.databases import PostgreSQL
from tests.support.store import claim, job_rows, submit
from tests.support.wait import wait_until
from tickets_batch.errors import SettingsError


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("nonsense", "is not a database URL"),
        ("mysql://user@host/name", "begins with mysql://, which is not supported"),
        ("postgresql+psycopg2://user@host/name", "not supported"),
        ("sqlite://", "names no file"),
        ("sqlite:///:memory:", "names no file"),
    ],
)
def test_a_url_that_cannot_be_used_is_refused_in_one_line(url: str, why: str) -> None:
    with pytest.raises(SettingsError, match=why) as error:
        Database.open(url)
    assert "\n" not in str(error.value)


def test_a_plain_postgresql_url_gets_the_driver() -> None:
    assert database.parse("postgresql://u@h/d").drivername == "postgresql+psycopg"
    assert database.parse("postgres://u@h/d").drivername == "postgresql+psycopg"


def test_a_server_that_is_not_there_is_named_without_its_password() -> None:
    db = Database.open("postgresql+psycopg://user:secret@127.0.0.1:1/tickets")

    with pytest.raises(StoreUnavailable, match=r"cannot use the database .*127\.0\.0\.1") as error, db.begin():
        pass
    assert "secret" not in str(error.value)
    assert "\n" not in str(error.value)
    with pytest.raises(StoreUnavailable):
        db.now()
    db.dispose()


def test_a_database_that_is_not_there_is_named(postgresql: PostgreSQL) -> None:
    db = Database.open(postgresql.url("nowhere"))

    with pytest.raises(StoreUnavailable, match=r'database "nowhere" does not exist'), db.read():
        pass
    db.dispose()


def test_a_file_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    db = Database.open(f"sqlite:///{tmp_path}/no/such/folder/tickets.db")

    with (
        pytest.raises(StoreUnavailable, match=r"no/such/folder/tickets.db: unable to open database file; .* directory"),
        db.begin(),
    ):
        pass
    db.dispose()


def test_a_file_that_is_no_database_is_named(tmp_path: Path) -> None:
    path = tmp_path / "tickets.db"
    path.write_text("custom_id,label\n" * 1_000)
    db = Database.open(f"sqlite:///{path}")

    with pytest.raises(StoreUnavailable, match="file is not a database; that file holds something else"), db.begin():
        pass
    db.dispose()


def test_a_full_disk_is_said_and_changes_nothing(sqlite_url: str) -> None:
    db = Database.open(sqlite_url)
    batch = submit(db, 1).batch_id
    with db.read() as connection:
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
        connection.exec_driver_sql(f"PRAGMA max_page_count = {pages}")  # of this connection, the only one in the pool

    with pytest.raises(StoreUnavailable, match="database or disk is full"):
        submit(db, 500, source_key="other")

    assert [shown.id for shown in batches.newest_first(db)] == [batch]
    db.dispose()


def test_a_lock_that_another_program_keeps_is_said(
    sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "LOCK_SECONDS", 0.05)
    db = Database.open(sqlite_url)
    other = sqlite3.connect(tmp_path / "tickets-batch.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")

    with pytest.raises(StoreUnavailable, match="database is locked"), db.begin():
        pass
    other.close()
    with db.begin():
        pass
    db.dispose()


def test_a_lock_is_taken_as_soon_as_it_is_free_however_long_it_was_kept(sqlite_url: str, tmp_path: Path) -> None:
    db = Database.open(sqlite_url)
    other = sqlite3.connect(tmp_path / "tickets-batch.db", isolation_level=None, check_same_thread=False)
    freed: list[float] = []

    def free() -> None:
        other.execute("COMMIT")
        freed.append(time.monotonic())

    late = []
    for hundredths in range(20, 34, 2):  # SQLite's own wait would be at 25 to 100 ms a look by then
        other.execute("BEGIN IMMEDIATE")
        timer = threading.Timer(hundredths / 100, free)
        timer.start()
        with db.begin():
            late.append(time.monotonic() - freed[-1])
        timer.join()

    assert median(late) < 0.015
    other.close()
    db.dispose()


def test_statements_wait_for_locks_again_after_a_begin_that_did_not(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def patience() -> object:
        with db.read() as connection:
            return connection.exec_driver_sql("PRAGMA busy_timeout").scalar_one()

    monkeypatch.setattr(database, "LOCK_SECONDS", 0.05)
    db = Database.open(sqlite_url)
    with db.begin():
        pass
    assert patience() == 50
    with db.begin(), pytest.raises(StoreUnavailable, match="database is locked"), db.begin():
        pass
    assert patience() == 50
    db.dispose()


def test_what_is_away_for_a_moment_is_tried_again(database: Database) -> None:
    calls = []

    def call() -> str:
        calls.append(1)
        if len(calls) < 3:
            raise StoreUnavailable("away") if len(calls) == 1 else StoreConflict("clash")
        return "done"

    assert database.attempt(call) == "done"
    assert len(calls) == 3


def test_what_stays_away_is_raised_as_it_is(database: Database) -> None:
    def call() -> None:
        raise StoreUnavailable("away")

    with pytest.raises(StoreUnavailable, match="away"):
        database.attempt(call, seconds=0.1)


def test_a_server_restart_in_the_middle_is_lived_through(postgresql: PostgreSQL, postgresql_url: str) -> None:
    db = Database.open(postgresql_url)
    batch = submit(db, 10).batch_id
    held = claim(db, batch, 5)
    postgresql.stop()
    try:
        with pytest.raises(StoreUnavailable):
            claim(db, batch, 5)
        calls = []

        def again() -> list[object]:
            calls.append(1)
            if len(calls) == 2:
                postgresql.start()
            return list(claim(db, batch, 5))

        assert len(db.attempt(again)) == 5
    finally:
        postgresql.start()
    assert claims.renew(db, {held[0].lease_token}, 15) == {job.id for job in held}
    db.dispose()


def test_a_deadlock_undoes_one_of_two_and_is_worth_another_try(postgresql_url: str) -> None:
    db = Database.open(postgresql_url)
    submit(db, 2)
    first, second = (row.id for row in job_rows(db, batches.resolve(db, "latest")))
    both_hold = threading.Barrier(2, timeout=10)
    clashes: list[StoreConflict] = []

    def lock(one: int, other: int) -> None:
        try:
            with db.begin() as connection:
                connection.execute(update(jobs).where(jobs.c.id == one).values(priority=1))
                both_hold.wait()
                connection.execute(update(jobs).where(jobs.c.id == other).values(priority=1))
        except StoreConflict as error:
            clashes.append(error)

    threads = [threading.Thread(target=lock, args=pair) for pair in ((first, second), (second, first))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [str(error) for error in clashes] == [
        "the database undid a transaction that clashed with another one: try again"
    ]
    db.dispose()


def test_our_own_faults_are_not_taken_for_the_database_s(database: Database) -> None:
    with pytest.raises(IntegrityError), database.begin() as connection:
        connection.execute(insert(jobs), {"batch_id": "none", "custom_id": "x", "answer_key": "x", "state": "pending"})
    with pytest.raises((OperationalError, Exception), match="nonsense"), database.begin() as connection:
        connection.execute(text("SELECT nonsense FROM jobs"))


def test_an_error_rolls_everything_back(database: Database) -> None:
    def fail() -> None:
        with database.begin() as connection:
            events.add(connection, database.now(), EventKind.SUBMITTED)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()

    assert events.recent(database) == []


def test_instants_come_back_aware_in_utc(database: Database) -> None:
    there = datetime(2026, 11, 30, 7, 0, 0, 123456, tzinfo=timezone(timedelta(hours=5, minutes=45)))
    with database.begin() as connection:
        connection.execute(insert(events_table), {"at": there, "kind": "test", "detail": {}})

    (event,) = events.recent(database)
    assert (event.at, event.at.tzinfo) == (there, UTC)


def test_a_naive_instant_is_refused(database: Database) -> None:
    with pytest.raises(StatementError, match="has no time zone"), database.begin() as connection:
        connection.execute(insert(events_table), {"at": datetime(2026, 11, 30), "kind": "test", "detail": {}})  # noqa: DTZ001


def test_the_time_is_the_database_s(database: Database) -> None:
    before = datetime.now(UTC)

    now = database.now()

    assert now.tzinfo is UTC
    assert abs((now - before).total_seconds()) < 5
    assert database.is_settled


def test_sqlite_writes_ahead_and_syncs_every_commit(sqlite_url: str) -> None:
    db = Database.open(sqlite_url)
    with db.read() as connection:
        found = [
            connection.exec_driver_sql(f"PRAGMA {pragma}").scalar_one()
            for pragma in ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
        ]
    assert found == ["wal", 2, 1, 30_000]
    db.dispose()


def test_a_reader_is_not_kept_waiting_by_a_writer(database: Database) -> None:
    batch = submit(database, 1).batch_id
    with database.begin() as connection:
        connection.execute(update(jobs).values(priority=9))

        assert job_rows(database, batch)[0].priority == 0


def test_a_client_cut_off_inside_a_transaction_does_not_hold_its_locks(
    postgresql_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "IDLE_IN_TRANSACTION_MS", 100)
    db = Database.open(postgresql_url)
    batch = submit(db, 1).batch_id

    def hold() -> None:
        with db.begin() as connection:
            connection.execute(select(jobs.c.id).with_for_update())
            wait_until(lambda: len(claim(db, batch)) == 1, "the lock of the idle transaction to go")
            connection.execute(select(jobs.c.id))

    with pytest.raises(StoreUnavailable):
        hold()
    db.dispose()
