"""`purge`, and `keep_text = false`: what a person reads, and what is left afterwards."""

import csv
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import update

from jobs.outcomes import Failed, Symptom
from jobs.store import batches, loading
from jobs.store.database import Database
from jobs.tables import batches as batches_table
from jobs.tables import tickets
from scheduler import service
from scheduler.dispatch import Task
from scheduler.service import Scheduler
from tests.support.in_process import directory
from tests.support.store import attempt, claim, count_rows, finish, submit, succeed
from tests.support.valkey import ValkeyServer
from tests.support.wait import wait_until
from tickets_batch.cli.run import run
from tickets_batch.settings import Settings

SETTINGS = """
timezone = "Europe/Berlin"
home = "home"
[source]
path = "tickets.csv"
[classification.labels]
billing = "charges"
shipping = "delivery"
[[pool]]
name = "gpu"
base_url = "http://127.0.0.1:9/v1"
model = "test-model"
capacity = { slots = 4 }
"""
ROWS = [
    ["T1", "2026-11-30 09:00", "Late", "Where is my parcel?"],
    ["T2", "2026-11-30 10:00", "Twice", "You charged me twice."],
    ["", "2026-11-30 11:00", "No id", "Nobody knows me."],
]
Said = Callable[..., list[str]]


@pytest.fixture
def said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Said]:
    """Calls the command in a directory with two tickets; the lines of stderr. It must end with `code`."""

    def call(*arguments: str, code: int = 0) -> list[str]:
        got = run(arguments)
        err = capsys.readouterr().err
        assert got == code, err
        return err.splitlines()

    with directory(tmp_path, monkeypatch, SETTINGS):
        with Path("tickets.csv").open("w", newline="") as file:
            csv.writer(file).writerows([["id", "created_at", "subject", "body"], *ROWS])
        yield call


@pytest.fixture
def db(said: Said) -> Iterator[Database]:
    """The database of the directory, with the batch of that day in it."""
    said("submit", "--date", "2026-11-30", code=1)
    opened = Database.open(f"sqlite:///{Path('home/tickets-batch.db').absolute()}")
    yield opened
    opened.dispose()


@pytest.fixture
def old(db: Database) -> str:
    """That batch, ended forty days ago: one ticket has a label, the other failed."""
    [batch] = batches.newest_first(db)
    first, second = claim(db, batch.id)
    succeed(db, [first])
    finish(db, [second], Failed("refused: a filter"), attempt(Symptom.REFUSED, detail="a filter"))
    with db.begin() as connection:
        connection.execute(update(batches_table).values(finished_at=db.now() - timedelta(days=40)))
    return batch.id


def test_it_says_what_it_removed(said: Said, db: Database, old: str) -> None:
    assert said("purge", "--older-than", "41d") == ["0 texts of tickets removed, 0.0 MB"]
    words = f"{old}: text of 2 tickets, 2 error details, 1 rejected row"
    assert said("purge", "--older-than", "30d", "--dry-run") == [
        f"{words} would be removed",
        "2 texts of tickets would be removed, 0.0 MB",
    ]
    assert count_rows(db, tickets) == 2

    removed, total, space = said("purge", "--older-than", "30d")
    assert (removed, total) == (f"{words} removed", "2 texts of tickets removed, 0.0 MB")
    assert space.endswith("run VACUUM on it while nothing else works with it")
    assert count_rows(db, tickets) == 0
    assert said("purge", "--older-than", "4w") == ["0 texts of tickets removed, 0.0 MB"]


def test_one_that_another_purge_is_at_is_named(said: Said, db: Database, old: str) -> None:
    with db.begin() as connection:
        lease = loading.lease("token", db.now(), gives_way=True)
        connection.execute(update(batches_table).values(lease))
    assert said("purge", "--older-than", "30d") == [
        "0 texts of tickets removed, 0.0 MB",
        f"another purge is at work on {old}, or broke off just now: purge again in a minute",
    ]
    assert count_rows(db, tickets) == 2


def test_an_open_batch_is_named_and_left_alone(said: Said, db: Database) -> None:
    [batch] = batches.newest_first(db)
    assert said("purge", "--older-than", "0h") == [
        "0 texts of tickets removed, 0.0 MB",
        f"left alone, for they have not ended: {batch.id}; cancel ends one",
    ]
    assert count_rows(db, tickets) == 2


@pytest.mark.parametrize("age", ["30", "d", "1.5d", "-3d", "30 d", "30y", ""])
def test_an_age_that_is_none(said: Said, age: str) -> None:
    lines = said("purge", "--older-than", age, code=2)
    assert f"{age!r} is no age: write a number and h, d or w, as in 30d" in lines[-1]


def test_without_an_age_it_removes_nothing(said: Said) -> None:
    assert "Missing option '--older-than'" in said("purge", code=2)[-1]


def test_before_the_first_batch(said: Said) -> None:
    assert said("purge", "--older-than", "1d") == ["there is no batch yet: nothing to remove"]
    assert not Path("home").exists()


def test_what_needs_the_text_says_that_it_is_gone(said: Said, old: str) -> None:
    said("purge", "--older-than", "30d")
    [line] = said("retry", old, code=1)
    assert f"the text of batch {old} was removed on " in line
    assert line.endswith(
        "so none of its tickets can be tried again: submit their source with --new, which takes over the labels that "
        "there are"
    )
    said("results", old)
    said("status", old)


def test_a_retry_says_which_tickets_it_cannot_try(said: Said, db: Database, old: str) -> None:
    said("purge", "--older-than", "30d")
    with Path("tickets.csv").open("a", newline="") as file:
        csv.writer(file).writerow(["T3", "2026-11-30 12:00", "Login", "I cannot log in."])
    said("submit", "--date", "2026-11-30", code=1)
    finish(db, claim(db, old), Failed("refused: a filter"), attempt(Symptom.REFUSED))

    assert said("retry", old, "--deadline", "none") == [
        f"{old}: 1 ticket back to work",
        "1 ticket cannot be tried again, for the text was removed",
    ]


def test_the_scheduler_removes_what_has_ended_where_no_text_is_kept(
    database: Database, valkey: ValkeyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    class NoQueue:
        def __len__(self) -> int:
            return 0

        def publish(self, task: Task) -> None: ...

    monkeypatch.setattr(service, "PURGE_SECONDS", 0.05)
    settings = Settings(redis_url=valkey.url, keep_text=False)
    scheduler = Scheduler(settings, database, NoQueue(), at_once=8, task_seconds=1.0)
    stop = threading.Event()
    thread = threading.Thread(target=scheduler.run, args=(stop,))
    thread.start()
    try:
        ended = submit(database, 3).batch_id
        still_open = submit(database, 2, source_key="other").batch_id
        succeed(database, claim(database, ended))
        wait_until(lambda: count_rows(database, tickets) == 2, "the text of the ended batch to go", timeout_seconds=30)
    finally:
        stop.set()
        thread.join()
    assert len(claim(database, still_open)) == 2
    assert batches.get(database, ended).succeeded == 3
