"""Migrations: they make exactly the tables that the program means, once, and say when they are needed."""

import re
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import func, insert, inspect, select, text
from sqlalchemy.exc import IntegrityError

from jobs.store import batches, schema
from jobs.store.database import Database
from jobs.tables import attempts, jobs, metadata, results, tickets
from tests.support.databases import PostgreSQL
from tests.support.store import assert_texts_are_counted, claim, submit
from tickets_batch.errors import UserError


@pytest.fixture(params=["sqlite", "postgresql"])
def bare_url(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str], str]:
    """Makes a database without tables under a name; the same name is the same database."""
    if request.param == "sqlite":
        return lambda name: f"sqlite:///{tmp_path}/{name}.db"
    server: PostgreSQL = request.getfixturevalue("postgresql")
    made: set[str] = set()

    def make(name: str) -> str:
        if name not in made:
            made.add(name)
            server.run(f"CREATE DATABASE bare_{name}")
            request.addfinalizer(lambda: server.run(f"DROP DATABASE bare_{name} WITH (FORCE)"))
        return server.url(f"bare_{name}")

    return make


def definitions(db: Database) -> list[str]:
    """Every table, column, default, constraint and index, as the database itself writes them down."""
    if db.dialect == "sqlite":
        query = "SELECT sql FROM sqlite_master WHERE name NOT LIKE 'alembic%' AND sql IS NOT NULL"
    else:
        query = """
            SELECT concat_ws(' ', table_name, column_name, data_type, character_maximum_length,
                             column_default, is_nullable, is_identity) FROM information_schema.columns
            WHERE table_schema = 'public' AND table_name <> 'alembic_version'
            UNION ALL SELECT indexdef FROM pg_indexes WHERE schemaname = 'public' AND tablename <> 'alembic_version'
            UNION ALL SELECT concat_ws(' ', conrelid::regclass, conname, pg_get_constraintdef(oid)) FROM pg_constraint
            WHERE connamespace = 'public'::regnamespace AND conrelid::regclass::text <> 'alembic_version'
            UNION ALL SELECT concat_ws(' ', relname, reloptions) FROM pg_class
            WHERE relnamespace = 'public'::regnamespace AND relkind = 'r' AND relname <> 'alembic_version'
        """
    with db.read() as connection:
        rows = [" ".join(row.split()) for row in connection.execute(text(query)).scalars()]
    if db.dialect == "sqlite":  # it keeps the statements as they were written, their parts in whatever order
        rows = [part for row in rows for part in re.sub(r" \)( WITHOUT ROWID)?$", r",\1", row).split(", ")]
    return sorted(row.rstrip(",") for row in rows)


def test_the_migrations_make_the_tables_of_the_program(bare_url: Callable[[str], str]) -> None:
    migrated, created = Database.open(bare_url("migrated")), Database.open(bare_url("created"))
    schema.upgrade(bare_url("migrated"))
    with created.begin() as connection:
        metadata.create_all(connection)

    with migrated.begin() as connection:
        context = MigrationContext.configure(
            connection, opts={"compare_server_default": True, "target_metadata": metadata}
        )
        assert compare_metadata(context, metadata) == []
    assert definitions(migrated) == definitions(created)
    migrated.dispose()
    created.dispose()


def test_the_version_is_that_of_the_newest_migration() -> None:
    config = Config()
    config.set_main_option("script_location", "migrations:")

    assert ScriptDirectory.from_config(config).get_current_head() == schema.VERSION


def test_a_bare_database_says_what_to_do(bare_url: Callable[[str], str]) -> None:
    db = Database.open(bare_url("bare"))

    assert not schema.is_current(db)
    with pytest.raises(UserError, match="the database has no tables yet: run tickets-batch db upgrade"):
        schema.require_current(db)
    schema.upgrade(bare_url("bare"))
    schema.require_current(db)
    assert schema.is_current(db)
    db.dispose()


@pytest.mark.parametrize(
    ("version", "why"),
    [
        ("0000", f"the database is at version 0000, this program needs {schema.VERSION}: run tickets-batch db upgrade"),
        ("9999", f"at version 9999, this program knows only {schema.VERSION}: install a newer tickets-batch"),
    ],
)
def test_another_version_is_named(database: Database, version: str, why: str) -> None:
    with database.begin() as connection:
        connection.execute(text(f"UPDATE alembic_version SET version_num = '{version}'"))

    with pytest.raises(UserError, match=why):
        schema.require_current(database)


def test_a_newer_database_is_not_touched(database: Database, database_url: str) -> None:
    with database.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))

    with pytest.raises(UserError, match="install a newer tickets-batch"):
        schema.upgrade(database_url)


def test_an_upgrade_of_a_current_database_keeps_what_is_in_it(database: Database, database_url: str) -> None:
    batch = submit(database, 3).batch_id

    schema.upgrade(database_url)

    assert len(claim(database, batch)) == 3


def at_version(url: str, version: str) -> Database:
    """A database as an earlier program left it."""
    db = Database.open(url)
    with db.begin() as connection:
        config = Config()
        config.set_main_option("script_location", "migrations:")
        config.attributes["connection"] = connection
        command.upgrade(config, version)
    return db


FIRST_TABLES = (
    "INSERT INTO batches (id, zone, source_key, date_key, sequence, source, spec, spec_hash, model, pools, state,"
    " created_at, finished_at, total, pending, running, succeeded) VALUES"
    " ('open', 'UTC', 'a', 'all', 1, 'a.csv', '{}', 'x', 'm', '[]', 'running', :now, NULL, 3, 1, 1, 1),"
    " ('over', 'UTC', 'b', 'all', 1, 'b.csv', '{}', 'x', 'm', '[]', 'completed', :now, :now, 1, 0, 0, 1)",
    "INSERT INTO jobs (id, batch_id, custom_id, answer_key, state, priority, lease_token, lease_expires_at,"
    " finished_at) VALUES (1, 'open', 'a', 'k', 'pending', 0, NULL, NULL, NULL),"
    " (2, 'open', 'b', 'k', 'running', 0, 't', :now, NULL), (3, 'open', 'c', 'k', 'succeeded', 0, NULL, NULL, :now),"
    " (4, 'over', 'd', 'k', 'succeeded', 0, NULL, NULL, :now)",
    "INSERT INTO tickets (job_id, subject, body) VALUES"
    " (1, 'Grüße', '你好'), (2, '', 'abc'), (3, 's', 'done'), (4, 's', 'done')",
    "INSERT INTO attempts (job_id, number, pool, model, started_at, seconds, prompt_tokens, completion_tokens, outcome,"
    " detail) VALUES (3, 1, 'gpu', 'm', :now, 1, 5, 1, 'succeeded', '')",
    "INSERT INTO results (job_id, label, model, prompt_tokens, completion_tokens) VALUES (3, 'billing', 'm', 5, 1)",
)


def test_an_upgrade_of_the_first_tables_keeps_every_row_and_counts_its_text(bare_url: Callable[[str], str]) -> None:
    db = at_version(bare_url("first"), "0001")
    with db.begin() as connection:
        for statement in FIRST_TABLES:
            connection.execute(text(statement.replace(":now", "'2026-11-30 22:00:00+00:00'")))

    schema.upgrade(bare_url("first"))

    with db.read() as connection:
        assert list(connection.execute(select(jobs.c.id, jobs.c.text_bytes).order_by(jobs.c.id))) == [
            (1, 13),  # 7 and 6 bytes, of 5 and 2 characters
            (2, 3),
            (3, 5),
            (4, 5),
        ]
        assert_texts_are_counted(connection)
        for table, rows in ((tickets, 4), (attempts, 1), (results, 1)):
            assert connection.execute(select(func.count()).select_from(table)).scalar_one() == rows
    left = {batch.id: batch.text_bytes_left for batch in batches.newest_first(db)}
    assert left == {"open": 16, "over": 0}
    assert [job.custom_id for job in claim(db, "open")] == ["a"]
    db.dispose()


def test_upgrades_at_once_make_the_tables_once(bare_url: Callable[[str], str]) -> None:
    url = bare_url("contended")
    failures: list[BaseException] = []

    def upgrade() -> None:
        try:
            schema.upgrade(url)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=upgrade) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert failures == []
    db = Database.open(url)
    schema.require_current(db)
    with db.read() as connection:
        assert set(metadata.tables) <= set(inspect(connection).get_table_names())
    db.dispose()


@pytest.mark.parametrize(
    "broken",
    [
        "UPDATE jobs SET state = 'lost'",
        "UPDATE jobs SET state = 'succeeded'",
        "UPDATE jobs SET finished_at = '2026-11-30 22:00:00'",
        "UPDATE jobs SET state = 'running'",
        "UPDATE jobs SET lease_token = 'x', lease_expires_at = '2026-11-30 22:00:00'",
        "UPDATE jobs SET attempts = -1",
        "UPDATE batches SET state = 'lost'",
        "UPDATE batches SET state = 'completed'",
        "UPDATE batches SET finished_at = '2026-11-30 22:00:00'",
        "UPDATE batches SET pending = pending - 1",
        "UPDATE batches SET pending = pending + 1, failed = failed - 1",
        "UPDATE batches SET wasted_tokens = -1",
        "UPDATE batches SET text_bytes_left = -1",
        "UPDATE batches SET blocked = 'no key'",
        "UPDATE batches SET loader_token = 'x'",
        "INSERT INTO tickets (job_id, subject, body) VALUES (999, '', '')",
    ],
)
def test_the_database_itself_refuses_what_must_never_be(database: Database, broken: str) -> None:
    submit(database, 1)

    with pytest.raises(IntegrityError), database.begin() as connection:
        connection.execute(text(broken))


def test_a_ticket_is_in_its_batch_once_and_in_other_batches_too(database: Database) -> None:
    batch = submit(database, 1).batch_id
    submit(database, 1, source_key="other")

    row = {"batch_id": batch, "custom_id": "t-0", "answer_key": "", "state": "pending", "priority": 0, "text_bytes": 0}
    with pytest.raises(IntegrityError), database.begin() as connection:
        connection.execute(insert(jobs), row)
