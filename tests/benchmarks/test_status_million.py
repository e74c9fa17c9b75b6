"""A batch of a million jobs: `status` reads one row, and what runs all night costs what it costs at ten thousand.

The two sizes stand in two databases of one kind and take turns, so that what else the machine does meets both.
"""

import shutil
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from statistics import median

import pytest
from sqlalchemy import text

from jobs.job import Job
from jobs.store import batches, results
from jobs.store.database import Database
from tests.support.databases import PostgreSQL
from tests.support.night import Night
from tests.support.store import claim, submit, succeed

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(900)]

SMALL, LARGE = 10_000, 1_000_000
AT_ONCE = 32
ROUNDS = 41
COMMANDS = 5
QUERY_MS, COMMAND_SECONDS = 20.0, 1.2
MOST_GROWTH = 1.5  # from the small to the large batch
NUMBERS = {
    "sqlite": "WITH RECURSIVE numbers(n) AS (SELECT :first UNION ALL SELECT n + 1 FROM numbers WHERE n < :last) ",
    "postgresql": "WITH numbers(n) AS (SELECT generate_series(CAST(:first AS bigint), CAST(:last AS bigint))) ",
}
JOBS = """
INSERT INTO jobs (batch_id, custom_id, answer_key, state, priority)
SELECT :batch, 'n-' || n, 'key-' || n, 'pending', 0 FROM numbers"""
TICKETS = """
INSERT INTO tickets (job_id, subject, body)
SELECT id, 'Parcel ' || custom_id, 'Where is my parcel? I have been waiting for it for more than a week.'
FROM jobs WHERE id NOT IN (SELECT job_id FROM tickets)"""
COUNTERS = """
UPDATE batches SET total = total + :more, pending = pending + :more, last_job_id = (SELECT max(id) FROM jobs)"""


def grow(db: Database, batch_id: str, size: int) -> None:
    """Make it a batch of so many jobs, by a few statements."""
    total = batches.get(db, batch_id).total
    with db.begin() as connection:
        numbers = {"first": total + 1, "last": size}
        connection.execute(text(NUMBERS[db.dialect] + JOBS), {"batch": batch_id, **numbers})
        connection.execute(text(TICKETS))
        connection.execute(text(COUNTERS), {"more": size - total})
    with db.begin() as connection:
        connection.execute(text("ANALYZE"))


@pytest.fixture
def small_database(request: pytest.FixtureRequest, database: Database, tmp_path: Path) -> Iterator[Database]:
    """A second empty database of the same kind."""
    if database.dialect == "sqlite":
        path = tmp_path / "small.db"
        shutil.copyfile(request.getfixturevalue("sqlite_template"), path)
        small = Database.open(f"sqlite:///{path}")
        yield small
        small.dispose()
        return
    server: PostgreSQL = request.getfixturevalue("postgresql")
    name = f"small_{uuid.uuid4().hex[:12]}"
    server.run(f"CREATE DATABASE {name} TEMPLATE {request.getfixturevalue('postgresql_template')}")
    small = Database.open(server.url(name))
    yield small
    small.dispose()
    server.run(f"DROP DATABASE {name} WITH (FORCE)")


def taken_ms(db: Database, batch_id: str) -> dict[str, float]:
    """Milliseconds on the clock of what runs all night, and of what a person asks for, once each."""
    held: list[Job] = []
    calls: dict[str, Callable[[], object]] = {
        "status query": lambda: batches.get(db, batch_id),
        f"claim {AT_ONCE}": lambda: held.extend(claim(db, batch_id, AT_ONCE)),
        f"finish {AT_ONCE}": lambda: succeed(db, held),
        "what is runnable": lambda: batches.runnable(db),
        "results, first page": lambda: list(islice(results.stream(db, batch_id), results.PAGE)),
    }
    taken = {}
    for what, call in calls.items():
        began = time.perf_counter()
        call()
        taken[what] = (time.perf_counter() - began) * 1e3
    assert len(held) == AT_ONCE
    return taken


def test_a_million_jobs(database: Database, small_database: Database, tmp_path: Path) -> None:
    of_size = {}
    for size, db in ((SMALL, small_database), (LARGE, database)):
        of_size[size] = db, submit(db, 1_000).batch_id
        grow(*of_size[size], size)
    taken: dict[int, dict[str, list[float]]] = {size: defaultdict(list) for size in of_size}
    for _ in range(ROUNDS):
        for size, (db, of_db) in of_size.items():
            for what, ms in taken_ms(db, of_db).items():
                taken[size][what].append(ms)
    found = {size: {what: median(ms) for what, ms in of.items()} for size, of in taken.items()}
    commands: dict[int, list[float]] = {size: [] for size in of_size}
    nights = {}
    for size, (db, _) in of_size.items():
        folder = tmp_path / str(size)
        folder.mkdir()
        nights[size] = Night(folder)
        nights[size].configure("http://127.0.0.1:9/v1", database_url=db.url.render_as_string(hide_password=False))
    for _ in range(COMMANDS):
        for size, night in nights.items():
            began = time.perf_counter()
            assert night.json("status", of_size[size][1])["request_counts"]["total"] == size
            commands[size].append(time.perf_counter() - began)
    for night in nights.values():
        night.close()
    growth = {what: found[LARGE][what] / found[SMALL][what] for what in found[SMALL]}
    print(f"\n{database.dialect}: ms at {SMALL:,} and at {LARGE:,} jobs")
    for what, ms in found[LARGE].items():
        print(f"  {what:20}{found[SMALL][what]:8.2f}{ms:8.2f}{growth[what]:8.2f} times")
    small, large = median(commands[SMALL]), median(commands[LARGE])
    print(f"  the whole status command {small:.2f} and {large:.2f} s")
    assert found[LARGE]["status query"] < QUERY_MS
    assert large < max(COMMAND_SECONDS, MOST_GROWTH * small)
    assert max(growth.values()) < MOST_GROWTH
