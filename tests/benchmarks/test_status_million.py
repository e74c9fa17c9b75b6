"""A batch of a million jobs: `status` reads one row, and what runs all night costs what it costs at ten thousand."""

import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from statistics import median

import pytest
from sqlalchemy import text

from jobs.store import batches, results
from jobs.store.database import Database
from tests.support.night import Night
from tests.support.store import claim, submit, succeed

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(900)]

SMALL, LARGE = 10_000, 1_000_000
AT_ONCE = 32
ROUNDS = 25
COMMANDS = 5
QUERY_MS, COMMAND_SECONDS = 20.0, 1.2
MOST_GROWTH = 3.0  # from the small to the large batch; medians of some milliseconds on a shared machine
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


def typical_ms(call: Callable[[], object], rounds: int = ROUNDS) -> float:
    """The median of some calls, in milliseconds on the clock."""
    taken = []
    for _ in range(rounds):
        began = time.perf_counter()
        call()
        taken.append((time.perf_counter() - began) * 1e3)
    return median(taken)


def costs(db: Database, batch_id: str) -> dict[str, float]:
    """Milliseconds of what runs all night, and of what a person asks for."""
    held = [claim(db, batch_id, AT_ONCE) for _ in range(ROUNDS)]
    left = iter(held)
    return {
        "status query": typical_ms(lambda: batches.get(db, batch_id)),
        f"claim {AT_ONCE}": typical_ms(lambda: held.append(claim(db, batch_id, AT_ONCE))),
        f"finish {AT_ONCE}": typical_ms(lambda: succeed(db, next(left))),
        "what is runnable": typical_ms(lambda: batches.runnable(db)),
        "results, first page": typical_ms(lambda: list(islice(results.stream(db, batch_id), results.PAGE)), rounds=9),
    }


def test_a_million_jobs(database: Database, database_url: str, tmp_path: Path) -> None:
    batch_id = submit(database, 1_000).batch_id
    found: dict[int, dict[str, float]] = {}
    for size in (SMALL, LARGE):
        grow(database, batch_id, size)
        found[size] = costs(database, batch_id)
    night = Night(tmp_path)
    night.configure("http://127.0.0.1:9/v1", database_url=database_url)
    commands = []
    for _ in range(COMMANDS):
        began = time.perf_counter()
        assert night.json("status", batch_id)["request_counts"]["total"] == LARGE
        commands.append(time.perf_counter() - began)
    night.close()
    growth = {what: found[LARGE][what] / found[SMALL][what] for what in found[SMALL]}
    print(f"\n{database.dialect}: ms at {SMALL:,} and at {LARGE:,} jobs")
    for what, ms in found[LARGE].items():
        print(f"  {what:20}{found[SMALL][what]:8.2f}{ms:8.2f}{growth[what]:8.2f} times")
    print(f"  the whole status command at {LARGE:,} jobs: {median(commands):.2f} s")
    assert found[LARGE]["status query"] < QUERY_MS
    assert median(commands) < COMMAND_SECONDS
    assert max(growth.values()) < MOST_GROWTH
