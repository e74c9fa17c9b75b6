"""`status` of a batch of a million jobs: one row is read, whatever the size."""

import time
from pathlib import Path
from statistics import median

import pytest
from sqlalchemy import text

from jobs.store import batches
from jobs.store.database import Database
from tests.support.night import Night
from tests.support.store import submit

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(900)]

JOBS = 1_000_000
COPY = """
INSERT INTO jobs (batch_id, custom_id, answer_key, state, priority)
SELECT batch_id, custom_id || '-' || n, answer_key, state, priority FROM jobs CROSS JOIN numbers"""
SERIES = {
    "sqlite": "WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 999) ",
    "postgresql": "WITH numbers(n) AS (SELECT generate_series(1, 999)) ",
}
QUERY_MS, COMMAND_SECONDS = 20.0, 1.2


def test_status_of_a_million_jobs(database: Database, database_url: str, tmp_path: Path) -> None:
    night = Night(tmp_path)
    batch_id = submit(database, 1_000).batch_id
    with database.begin() as connection:
        connection.execute(text(SERIES[database.dialect] + COPY))
        connection.execute(text("UPDATE batches SET total = 1000000, pending = 1000000"))
    night.configure("http://127.0.0.1:9/v1", database_url=database_url)
    queries, commands = [], []
    for _ in range(25):
        began = time.perf_counter()
        batches.get(database, batch_id)
        queries.append((time.perf_counter() - began) * 1e3)
    for _ in range(7):
        began = time.perf_counter()
        assert night.json("status", batch_id)["request_counts"]["total"] == JOBS
        commands.append(time.perf_counter() - began)
    night.close()
    print(f"\n{database.dialect}, {JOBS:,} jobs: query {median(queries):.2f} ms, command {median(commands):.2f} s")
    assert median(queries) < QUERY_MS
    assert median(commands) < COMMAND_SECONDS
