"""A million tickets from a CSV file into both databases, beside a worker that goes on; and what COPY buys.

PostgreSQL syncs to disk here, as it does not in other tests.
"""

import csv
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

import psutil  # type: ignore[import-untyped]
import pytest
from sqlalchemy import Connection, Table, insert

from jobs.store import batches, bulk, services, submissions
from jobs.store.database import Database
from jobs.store.given import given, packed
from jobs.tables import jobs, tickets
from tests.support.databases import PostgreSQL
from tests.support.night import Night
from tests.support.store import claim, submit, succeed, ticket

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(1800)]

MILLION = 1_000_000
OTHERS = 60_000  # jobs for the worker beside the submit
AT_ONCE = 8
ROUNDS, OF_A_ROUND = 3, 50_000
OF_THE_FLOOR = 500_000  # long enough for the server's disk to show what it does under so many rows, whoever writes them
TEXT = "I was told that my parcel would come last week. It has not, and nobody answers the telephone. Where is it? " * 2
LEAST_ROWS_PER_SECOND = {"postgresql": 10_000, "sqlite": 5_000}
MOST_MB = 300
MOST_WAIT_MS = {"postgresql": 100.0, "sqlite": 1_000.0}  # SQLite has one writer at a time: a chunk's is one
MOST_OF_THE_FLOOR = 1.5
MOST_OF_ALONE = 3.0  # on a busy machine the longest of thousands is long without any submit

Insert = Callable[[Connection, Table, Sequence[str], Iterable[tuple[Any, ...]]], None]


@pytest.fixture
def synced(request: pytest.FixtureRequest, database: Database) -> Iterator[Database]:
    """The database, with a commit that survives a power cut."""
    if database.dialect == "sqlite":  # always is
        yield database
        return
    server: PostgreSQL = request.getfixturevalue("postgresql")
    for statement in ("ALTER SYSTEM SET fsync = on", "SELECT pg_reload_conf()"):
        server.run(statement)
    yield database
    for statement in ("ALTER SYSTEM SET fsync = off", "SELECT pg_reload_conf()"):
        server.run(statement)


class Writer:
    """Claims and finishes the jobs of another batch, twenty times a second; `waits_ms` is what each of the two took."""

    def __init__(self, db: Database, batch_id: str) -> None:
        self._db, self._batch_id = db, batch_id
        self.waits_ms: list[float] = []
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._work)

    @contextmanager
    def at_work(self) -> Iterator[list[float]]:
        self._thread.start()
        try:
            yield self.waits_ms
        finally:
            self._ending.set()
            self._thread.join()

    def _work(self) -> None:
        while not self._ending.wait(0.05):
            began = time.perf_counter()
            held = claim(self._db, self._batch_id, AT_ONCE)
            claimed = time.perf_counter()
            succeed(self._db, held)
            finished = time.perf_counter()
            services.beat(self._db, "scheduler", "one", "here", 1, {})  # without any, submit ends with a complaint
            self.waits_ms += [(claimed - began) * 1e3, (finished - claimed) * 1e3]


def late(waits_ms: Sequence[float]) -> float:
    """The ninety-ninth of a hundred."""
    return sorted(waits_ms)[int(len(waits_ms) * 0.99)]


def described(waits_ms: Sequence[float]) -> str:
    return (
        f"p50 {median(waits_ms):5.1f}, p99 {late(waits_ms):6.1f}, longest {max(waits_ms):6.1f} ms of {len(waits_ms):,}"
    )


def write_csv(path: Path, count: int) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "subject", "body", "created_at"])
        writer.writerows(
            (f"T-{n * 7919 % count:07d}", f"Parcel {n}", f"{n}: {TEXT}", "2026-11-30 10:15:00") for n in range(count)
        )


def bare_rows_per_second(db: Database, batch_id: str, path: Path) -> float:
    """The floor: the first cells of the file straight into the same tables, in chunks like ours, unchecked."""
    began = time.perf_counter()
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.reader(file)
        next(reader)
        for _ in range(OF_THE_FLOOR // submissions.CHUNK):
            with db.begin() as connection:
                put_bare(connection, batch_id, islice(reader, submissions.CHUNK))
    return OF_THE_FLOOR / (time.perf_counter() - began)


def put_bare(connection: Connection, batch_id: str, lines: Iterable[list[str]]) -> None:
    ids = bulk.take_job_ids(connection, submissions.CHUNK)
    rows = list(zip(ids, lines, strict=True))
    bulk.insert_rows(
        connection,
        jobs,
        ("id", "batch_id", "custom_id", "answer_key", "state", "priority"),
        ((n, batch_id, f"floor {cells[0]}", f"{n:032}", "pending", 0) for n, cells in rows),
    )
    bulk.insert_rows(connection, tickets, ("job_id", "subject", "body"), ((n, *cells[1:3]) for n, cells in rows))


def test_a_million_tickets_from_csv(synced: Database, database_url: str, tmp_path: Path) -> None:
    others = submit(synced, OTHERS).batch_id
    path = tmp_path / "million.csv"
    write_csv(path, MILLION)
    with Writer(synced, others).at_work() as alone:
        time.sleep(10)
    with Writer(synced, others).at_work() as beside_floor:
        floor = bare_rows_per_second(synced, submit(synced, 1, source_key="floor").batch_id, path)
    night = Night(tmp_path)
    night.configure("http://127.0.0.1:9/v1", database_url=database_url)
    peak_mb = 0.0
    with Writer(synced, others).at_work() as beside:
        began = time.perf_counter()
        command = night.start("submit", "--all", "--input", str(path), "--json")
        process = psutil.Process(command.pid)
        while command.code is None:
            try:
                cpu, memory = process.cpu_times(), process.memory_info()
            except psutil.NoSuchProcess:
                break
            peak_mb = max(peak_mb, memory.rss / 1e6)
            time.sleep(0.1)
        assert command.wait(10) == 0, command.err
        seconds = time.perf_counter() - began
    batch = batches.resolve(synced, "latest")
    added = batches.get(synced, batch).total
    night.close()
    path.unlink()
    print(
        f"\n{synced.dialect}: {added:,} tickets, {added / seconds:,.0f} rows/s by the whole command ({seconds:.0f} s)"
    )
    of_floor = added / seconds / floor
    print(f"  bare csv.reader into the tables, in chunks as large: {floor:,.0f} rows/s, ours is {of_floor:.2f} of it")
    print(f"  CPU of submit {(cpu.user + cpu.system) / added * 1e6:.0f} us a row, peak {peak_mb:.0f} MB")
    print(f"  another writer alone   {described(alone)}")
    print(f"  beside the bare chunks {described(beside_floor)}")
    print(f"  beside the submit      {described(beside)}")
    assert added == MILLION
    assert added / seconds >= LEAST_ROWS_PER_SECOND[synced.dialect]
    assert peak_mb < MOST_MB
    most_ms = max(MOST_WAIT_MS[synced.dialect], MOST_OF_ALONE * max(alone), MOST_OF_THE_FLOOR * max(beside_floor))
    assert max(beside) < most_ms
    assert late(beside) < MOST_WAIT_MS[synced.dialect]


def by_executemany(
    connection: Connection, table: Table, columns: Sequence[str], rows: Iterable[tuple[Any, ...]]
) -> None:
    """The library's own way with many rows."""
    connection.execute(insert(table), [dict(zip(columns, row, strict=True)) for row in rows])


def by_one_parameter(
    connection: Connection, table: Table, columns: Sequence[str], rows: Iterable[tuple[Any, ...]]
) -> None:
    """All rows in one JSON parameter, as small writes have them."""
    dialect = connection.dialect.name
    listed = [dict(zip(columns, row, strict=True)) for row in rows]
    new = given(dialect, "new", **{name: table.c[name].type for name in columns})
    connection.execute(insert(table).from_select(columns, new.select()), packed(dialect, listed))


def test_what_the_way_into_the_tables_costs(synced: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    ways: dict[str, Insert] = {
        "ours": bulk.insert_rows,
        "executemany": by_executemany,
        "one JSON parameter": by_one_parameter,
    }
    spent: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(ROUNDS):
        for name, way in ways.items():
            seconds = 0.0

            def timed(*arguments: Any, way: Insert = way) -> None:
                nonlocal seconds
                began = time.perf_counter()
                way(*arguments)
                seconds += time.perf_counter() - began

            monkeypatch.setattr(bulk, "insert_rows", timed)
            rows = (ticket(n, f"{number} {name} {n}: {TEXT}") for n in range(OF_A_ROUND))
            submit(synced, rows, source_key=f"{number} {name}")
            spent[name].append(seconds)
    print(f"\n{synced.dialect}: us a ticket into jobs and tickets, median of {ROUNDS} rounds of {OF_A_ROUND:,}")
    ours = median(spent["ours"])
    for name, of in spent.items():
        print(f"  {name:20}{median(of) / OF_A_ROUND * 1e6:6.1f}, {median(of) / ours:.2f} of ours")
    assert median(spent["executemany"]) > ours or synced.dialect == "sqlite"
