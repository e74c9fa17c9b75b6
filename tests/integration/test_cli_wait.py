"""Waiting for a batch: what is said while it does not end, when waiting is given up, and the exit code of its end."""

import asyncio
import json
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Self

import pytest
from sqlalchemy import delete, update

from jobs.states import BatchState
from jobs.store import batches, moves, schema, services
from jobs.store.batches import Batch
from jobs.store.database import Database
from jobs.tables import batches as batches_table
from scheduler.capacity import Amount
from scheduler.ledger import Ledger
from scheduler.permit import Ask, Kind, PublishedLimit
from scheduler.pools import capacity_of
from tests.support.shift import pool_settings
from tests.support.store import submit
from tests.support.valkey import ValkeyServer
from tickets_batch.cli import wait
from tickets_batch.cli.database_file import DatabaseGone
from tickets_batch.cli.ending import ending_in_words, exit_code
from tickets_batch.cli.ledgers import Ledgers
from tickets_batch.cli.live import watch
from tickets_batch.cli.live.look import Look
from tickets_batch.cli.submit_and_wait import _goes_on
from tickets_batch.cli.wait import NobodyWorks, Waiting
from tickets_batch.settings import Settings

ENOUGH_LOOKS = 200


class Recorder:
    """A display that remembers; it can end the batch after so many looks. What begins to be amiss counts as said."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.looks: list[Look] = []
        self.after: dict[int, Any] = {}

    def show(self, look: Look) -> None:
        known = self.looks[-1].notes if self.looks else ()
        self.looks.append(look)
        for note in look.notes:
            if note not in known:
                self.say(note)
        assert len(self.looks) < ENOUGH_LOOKS, self.said
        if act := self.after.get(len(self.looks)):
            act()

    def say(self, line: str) -> None:
        self.said.append(line)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: Any) -> None: ...


@pytest.fixture
def db(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Database]:
    monkeypatch.setattr(wait, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(watch, "SELDOM_SECONDS", 0.0)
    monkeypatch.setattr(wait, "UNNOTICED_SECONDS", 0.05)
    monkeypatch.setattr(wait, "GONE_SECONDS", 0.3)
    monkeypatch.setattr(wait, "BLOCKED_SECONDS", 0.3)
    url = f"sqlite:///{tmp_path / 'test.db'}"
    schema.upgrade(url)
    opened = Database.open(url)
    yield opened
    opened.dispose()


@pytest.fixture
def batch(db: Database) -> Batch:
    return batches.get(db, submit(db, 3).batch_id)


@pytest.fixture
def shown() -> Recorder:
    return Recorder()


@pytest.fixture
def ledgers(tmp_path: Path) -> Iterator[Ledgers]:
    with Ledgers(Settings(home=tmp_path / "home")) as opened:
        yield opened


def waiting(db: Database, batch: Batch, ledgers: Ledgers, shown: Recorder, gives_up: bool = False) -> Batch:
    settings = Settings(timezone="Europe/Berlin")
    return Waiting(db, batch.id, ledgers, settings, shown, remedy="start them", gives_up=gives_up).until_it_ends()


def beat(db: Database, *roles: str) -> None:
    for role in roles:
        services.beat(db, role, "one", "here", 1, {})


def block(db: Database, batch: Batch, why: str | None, **more: Any) -> None:
    probe_at = db.now() + timedelta(hours=1) if why else None
    values = {"blocked": why, "probe_at": probe_at, **more}
    with db.begin() as connection:
        connection.execute(update(batches_table).where(batches_table.c.id == batch.id).values(values))


def test_it_returns_the_batch_when_it_has_ended(db: Database, batch: Batch, ledgers: Ledgers, shown: Recorder) -> None:
    beat(db, "scheduler", "worker")
    shown.after[3] = lambda: moves.cancel(db, batch.id)
    assert waiting(db, batch, ledgers, shown).state is BatchState.CANCELLED
    first, last = shown.looks[0], shown.looks[-1]
    assert (first.batch.pending, [pool.reading for pool in first.pools]) == (3, [None])
    assert (last.batch.cancelled, last.notes) == (3, ())
    assert [event.kind for event in last.events] == ["cancelled", "cancelling", "submitted"]
    assert shown.said == ["no Redis has been started here yet"]


def test_chat_is_shown_and_a_blind_pool_is_said_once(
    db: Database, batch: Batch, shown: Recorder, tmp_path: Path, valkey: ValkeyServer
) -> None:
    beat(db, "scheduler", "worker")
    settings = Settings(home=tmp_path, redis_url=valkey.url, pool=(pool_settings("http://127.0.0.1:9/v1"),))
    note = {"rule": "blind", "load": {"is_blind": True}, "at": time.time()}

    async def chat() -> None:
        ledger = Ledger.connect(valkey.url, "gpu", capacity_of(settings.pool[0]), lease_seconds=60)
        await ledger.found()
        await ledger.publish(PublishedLimit(Amount(1, 2_000), 1_000), 60, 1, json.dumps(note))
        await ledger.acquire(Kind.INTERACTIVE, Ask(500, 500))
        await ledger.aclose()

    asyncio.run(chat())
    shown.after[30] = lambda: moves.cancel(db, batch.id)
    with Ledgers(settings) as ledgers:
        Waiting(db, batch.id, ledgers, settings, shown, remedy="start them").until_it_ends()
    assert shown.looks[0].notes == (), "at the start the first reading may still be on its way"
    (pool,) = shown.looks[0].pools
    assert pool.reading is not None
    assert (pool.reading.chat.slots, pool.reading.snapshot.batch.slots, pool.reading.limit.slots) == (1, 0, 1)
    assert pool.target_seconds == settings.pool[0].ttft_target_seconds
    assert [line.split(":")[0] for line in shown.said] == ["pool gpu"]
    assert "add a [[pool.signal]]" in shown.said[0]


def test_nobody_at_work_is_said_once_and_then_given_up(
    db: Database, batch: Batch, ledgers: Ledgers, shown: Recorder
) -> None:
    with pytest.raises(
        NobodyWorks, match=f"no scheduler and no worker is alive: start them; {batch.id} is saved and goes on"
    ):
        waiting(db, batch, ledgers, shown, gives_up=True)
    assert shown.said.count("no scheduler and no worker is alive, still waiting: start them") == 1


def test_own_services_that_are_started_again_are_waited_for(
    db: Database, batch: Batch, ledgers: Ledgers, shown: Recorder
) -> None:
    beat(db, "scheduler")
    shown.after[60] = lambda: moves.cancel(db, batch.id)
    assert waiting(db, batch, ledgers, shown).state is BatchState.CANCELLED
    assert "no worker is alive, still waiting: start them" in shown.said


def test_services_that_come_in_time_end_the_worry(
    db: Database, batch: Batch, ledgers: Ledgers, shown: Recorder
) -> None:
    shown.after[10] = lambda: beat(db, "scheduler", "worker")
    shown.after[60] = lambda: moves.cancel(db, batch.id)
    assert waiting(db, batch, ledgers, shown, gives_up=True).state is BatchState.CANCELLED


def test_a_blocked_batch_without_a_deadline_is_left_after_a_while(
    db: Database, batch: Batch, ledgers: Ledgers, shown: Recorder
) -> None:
    beat(db, "scheduler", "worker")
    block(db, batch, "HTTP 401: the key is wrong")
    ended = waiting(db, batch, ledgers, shown)
    assert (ended.blocked, exit_code(ended)) == ("HTTP 401: the key is wrong", 6)
    assert (
        "blocked: HTTP 401: the key is wrong; goes on by itself when that works, or mend it here and submit again"
        in shown.said
    )


def test_with_a_deadline_a_blocked_batch_has_until_then(
    db: Database, batch: Batch, ledgers: Ledgers, shown: Recorder
) -> None:
    beat(db, "scheduler", "worker")
    block(db, batch, "model not found", deadline_at=db.now() + timedelta(hours=1))
    shown.after[100] = lambda: moves.cancel(db, batch.id)
    assert waiting(db, batch, ledgers, shown).state is BatchState.CANCELLED


def test_a_database_that_goes_away_is_waited_for(
    db: Database, batch: Batch, ledgers: Ledgers, shown: Recorder, tmp_path: Path
) -> None:
    beat(db, "scheduler", "worker")
    file = tmp_path / "test.db"

    def take_away() -> None:
        db.dispose()
        file.rename(tmp_path / "aside")
        file.mkdir()

    def bring_back() -> None:
        db.dispose()
        file.rmdir()
        (tmp_path / "aside").rename(file)
        moves.cancel(db, batch.id)

    shown.after[3] = take_away
    said = shown.say

    def say(line: str) -> None:
        said(line)
        if "cannot use the database" in line:
            bring_back()

    shown.say = say  # type: ignore[method-assign]
    assert waiting(db, batch, ledgers, shown).state is BatchState.CANCELLED
    assert sum("cannot use the database" in line for line in shown.said) == 1


@pytest.mark.parametrize("comes_back", [False, True])
def test_a_database_file_that_was_deleted_ends_the_waiting(
    db: Database, batch: Batch, ledgers: Ledgers, shown: Recorder, tmp_path: Path, comes_back: bool
) -> None:
    """The open file goes on being written, so nothing else would ever tell."""
    beat(db, "scheduler", "worker")
    file = tmp_path / "test.db"

    def delete() -> None:
        if not comes_back:
            file.unlink()
            return
        (tmp_path / "other.db").touch()
        (tmp_path / "other.db").replace(file)

    shown.after[3] = delete
    shown.after[60] = lambda: moves.cancel(db, batch.id)
    what = "is not the one that was opened any more" if comes_back else "is gone"
    with pytest.raises(DatabaseGone, match=f"the database file {file} {what}, and with it what was done: put it back"):
        waiting(db, batch, ledgers, shown)
    assert len(shown.looks) == 3


@pytest.mark.parametrize("end", [KeyboardInterrupt(), SystemExit(143)])
class TestInterrupted:
    """What the last line says of the batch is looked up: it is what a person relies on."""

    def interrupted(self, db: Database, batch: Batch, end: BaseException, act: Any) -> None:
        with _goes_on(db, batch):
            act()
            raise end

    def said(self, db: Database, batch: Batch, end: BaseException, capsys: pytest.CaptureFixture[str], act: Any) -> str:
        with pytest.raises(type(end)):
            self.interrupted(db, batch, end, act)
        (line,) = capsys.readouterr().err.splitlines()
        return str(line)

    def test_a_batch_that_is_there_is_saved(
        self, db: Database, batch: Batch, end: BaseException, capsys: pytest.CaptureFixture[str]
    ) -> None:
        expected = f"{batch.id} is saved: submit --wait again, and it goes on"
        assert self.said(db, batch, end, capsys, lambda: None) == expected

    def test_one_whose_database_file_is_gone_is_not(
        self, db: Database, batch: Batch, end: BaseException, capsys: pytest.CaptureFixture[str], tmp_path: Path
    ) -> None:
        line = self.said(db, batch, end, capsys, (tmp_path / "test.db").unlink)
        assert line.startswith(f"the database file {tmp_path}/test.db is gone, and with it what was done: ")
        assert "saved" not in line

    def test_nor_one_that_is_not_in_the_database_any_more(
        self, db: Database, batch: Batch, end: BaseException, capsys: pytest.CaptureFixture[str]
    ) -> None:
        def drop() -> None:
            with db.begin() as connection:
                connection.execute(delete(batches_table))

        line = self.said(db, batch, end, capsys, drop)
        assert line.startswith(f"whether {batch.id} is still saved cannot be seen: ")


@pytest.mark.parametrize(
    ("changes", "code", "words"),
    [
        ({"state": BatchState.COMPLETED, "succeeded": 3}, 0, "completed: 3 succeeded"),
        ({"state": BatchState.COMPLETED, "succeeded": 2, "failed": 1}, 3, "completed: 2 succeeded, 1 failed"),
        ({"state": BatchState.EXPIRED, "failed": 1, "expired": 2}, 4, "expired: 0 succeeded, 1 failed, 2 expired"),
        ({"state": BatchState.CANCELLED, "cancelled": 3}, 5, "cancelled: 0 succeeded, 3 cancelled"),
        ({"blocked": "401", "pending": 3}, 6, "blocked: 401: 0 succeeded, 3 left; mend that, and submit --wait again"),
    ],
)
def test_how_it_ended(batch: Batch, changes: dict[str, Any], code: int, words: str) -> None:
    ended = replace(batch, **{"pending": 0, **changes})
    assert exit_code(ended) == code
    assert ending_in_words(ended) == f"{batch.id} {words}; tickets-batch results {batch.id} writes them"
