"""The roles that the page about security gives to PostgreSQL: each can do its work, and no more."""

import re
import uuid
from collections.abc import Iterator

import psycopg
import pytest

from jobs.store import batches, schema
from jobs.store.database import Database
from tests.docs.named import section
from tests.support.databases import PostgreSQL
from tests.support.store import claim, submit, succeed

pytestmark = pytest.mark.long


@pytest.fixture
def urls(postgresql: PostgreSQL) -> Iterator[tuple[str, str]]:
    """The database as its owner and as the worker reach it, made with the page's own statements."""
    mark = uuid.uuid4().hex[:8]
    (script,) = re.findall(r"```sql\n(.*?)```", section("docs/security.md", "Roles in PostgreSQL"), re.S)
    script = re.sub(r"\btickets(_owner|_work)?\b", lambda found: f"{found[0]}_{mark}", script)
    in_any, _, in_its_own = script.partition(f"\\connect tickets_{mark}\n")
    for statement in filter(str.strip, in_any.split(";")):
        postgresql.run(statement)
    socket = postgresql.url("x").partition("host=")[2]
    with psycopg.connect(f"host={socket} user=postgres dbname=tickets_{mark}", autocommit=True) as connection:
        for statement in filter(str.strip, in_its_own.split(";")):
            connection.execute(statement.encode())
    base = postgresql.url(f"tickets_{mark}")
    yield base.replace("postgres@", f"tickets_owner_{mark}@"), base.replace("postgres@", f"tickets_work_{mark}@")
    postgresql.run(f"DROP DATABASE tickets_{mark} WITH (FORCE)")
    for role in ("owner", "work"):
        postgresql.run(f"DROP ROLE tickets_{role}_{mark}")


def test_one_role_owns_the_tables_and_another_works(urls: tuple[str, str]) -> None:
    owner, work = urls
    schema.upgrade(owner)
    db = Database.open(work)
    batch = submit(db, 3).batch_id
    assert len(succeed(db, claim(db, batch))) == 3
    assert batches.get(db, batch).succeeded == 3
    db.dispose()
    for forbidden in ("DROP TABLE jobs", "ALTER TABLE jobs ADD x int", "CREATE TABLE x (a int)", "TRUNCATE jobs",
                      "COPY jobs TO PROGRAM 'cat'", "CREATE ROLE x"):  # fmt: skip
        dsn = work.replace("postgresql+psycopg", "postgresql")
        with psycopg.connect(dsn) as connection, pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute(forbidden.encode())
