"""The watch behind the live view: what it finds, what it costs, and what is left of it when the database goes away."""

import asyncio
import json
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import Engine, event

from jobs.store import batches, events, forecasts, moves, services
from jobs.store.database import Database
from jobs.store.events import EventKind
from scheduler.capacity import Amount
from scheduler.ledger import Ledger
from scheduler.permit import Ask, Kind, Permit, PublishedLimit
from scheduler.pools import capacity_of
from tests.support.live import forecast
from tests.support.night import PYTHON, Night
from tests.support.shift import pool_settings
from tests.support.store import START, ManualClock, claim, submit, succeed
from tests.support.terminal import TerminalCommand
from tests.support.valkey import ValkeyServer
from tests.support.wait import wait_until
from tickets_batch.cli.ledgers import Ledgers
from tickets_batch.cli.live import watch
from tickets_batch.cli.live.watch import Watch
from tickets_batch.settings import Settings

pytestmark = pytest.mark.long


@pytest.fixture
def batch_id(store: Database) -> str:
    return submit(store, 5, deadline_at=START + timedelta(hours=8)).batch_id


@pytest.fixture
def settings(tmp_path: Path, valkey: ValkeyServer) -> Settings:
    pool = pool_settings("http://127.0.0.1:9/v1", ttft_target_seconds=0.6)
    return Settings(home=tmp_path, redis_url=valkey.url, pool=(pool,))


@pytest.fixture
def ledgers(settings: Settings) -> Iterator[Ledgers]:
    with Ledgers(settings) as opened:
        yield opened


@contextmanager
def statements() -> Iterator[list[str]]:
    """The SQL that is sent meanwhile."""
    sent: list[str] = []

    def note(connection: object, cursor: object, statement: str, *more: object) -> None:
        sent.append(statement)

    event.listen(Engine, "before_cursor_execute", note)
    yield sent
    event.remove(Engine, "before_cursor_execute", note)


def chat(settings: Settings, url: str, requests: int) -> None:
    """A limit of ten slots is in force, and so many chat requests have their first token and stay."""

    async def play() -> None:
        ledger = Ledger.connect(url, "gpu", capacity_of(settings.pool[0]), lease_seconds=60)
        await ledger.found()  # where there is none yet
        note = json.dumps({"rule": "maximum", "load": {}, "at": time.time()})
        await ledger.publish(PublishedLimit(Amount(10, 20_000), 1_000), 60, 1, note)
        for _ in range(requests):
            permit = await ledger.acquire(Kind.INTERACTIVE, Ask(500, 500))
            assert isinstance(permit, Permit)
            await ledger.first_token(permit)
        await ledger.aclose()

    asyncio.run(play())


def test_everything_around_a_batch(
    store: Database, store_clock: ManualClock, batch_id: str, settings: Settings, ledgers: Ledgers, valkey: ValkeyServer
) -> None:
    forecasts.record(store, forecast(batch_id=batch_id, at=START))
    services.beat(store, "scheduler", "one", "here", 1, {})
    store_clock.advance(1)
    events.record(store, EventKind.LIMIT, pool="gpu", to="shared", reason="all that is shared is free")
    chat(settings, valkey.url, requests=2)
    found = Watch(store, batch_id, ledgers, settings).look()
    assert found.batch == batches.get(store, batch_id)
    assert found.forecast is not None
    assert found.forecast.at == START
    assert [one.kind for one in found.events] == ["limit", "submitted"]
    assert [one.role for one in found.at_work] == ["scheduler"]
    (pool,) = found.pools
    assert pool.reading is not None
    assert (pool.reading.chat, pool.reading.limit.slots) == (Amount(2, 2_000), 10)
    assert (pool.target_seconds, pool.heard.count, pool.heard.is_of_late) == (0.6, 2, False)


def test_what_is_new_since_the_look_before(
    store: Database, batch_id: str, settings: Settings, ledgers: Ledgers, valkey: ValkeyServer
) -> None:
    chat(settings, valkey.url, requests=2)
    seen = Watch(store, batch_id, ledgers, settings)
    assert seen.look().rate_per_second is None
    succeed(store, claim(store, batch_id, 3))
    chat(settings, valkey.url, requests=1)
    found = seen.look()
    assert found.batch.succeeded == 3
    assert found.rate_per_second is not None
    assert (found.pools[0].heard.count, found.pools[0].heard.is_of_late) == (1, True)


def test_events_of_the_pool_before_the_batch_are_not_its_own(
    store: Database, store_clock: ManualClock, settings: Settings, ledgers: Ledgers
) -> None:
    events.record(store, EventKind.LIMIT, pool="gpu", to="floor")
    store_clock.advance(1)
    later = submit(store, 1).batch_id
    assert [one.kind for one in Watch(store, later, ledgers, settings).look().events] == ["submitted"]


def test_a_look_reads_one_row(
    store: Database, batch_id: str, settings: Settings, ledgers: Ledgers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "SELDOM_SECONDS", 3_600.0)
    seen = Watch(store, batch_id, ledgers, settings)
    seen.look()
    with statements() as sent:
        for _ in range(5):
            seen.look()
    reads = [one for one in sent if not one.startswith(("BEGIN", "ROLLBACK"))]
    assert len(reads) == 5
    assert all("FROM batches" in one and "jobs" not in one.partition("FROM")[2] for one in reads)


def test_the_last_look_grows_old(store: Database, batch_id: str, settings: Settings, ledgers: Ledgers) -> None:
    seen = Watch(store, batch_id, ledgers, settings)
    assert seen.last() is None
    seen.look()
    first = seen.last()
    assert first is not None

    def is_older() -> bool:
        now = seen.last()
        return now is not None and now.age_seconds > first.age_seconds

    wait_until(is_older, "it to be older")


class TestOnATerminal:
    """The command as a person sees it, where nobody works on the batch."""

    @pytest.fixture
    def night(self, tmp_path: Path, database_url: str, valkey: ValkeyServer) -> Iterator[Night]:
        night = Night(tmp_path)
        night.configure("http://127.0.0.1:9/v1", chat=4, database_url=database_url, redis_url=valkey.url)
        yield night
        night.close()

    @pytest.fixture
    def follower(self, night: Night, database: Database) -> Iterator[TerminalCommand]:
        submit(database, 40)
        command = TerminalCommand([*PYTHON, "status", "--follow"], night.folder, night.environment)
        yield command
        command.close()

    def test_it_is_kept_up_to_date_until_the_end(self, follower: TerminalCommand, database: Database) -> None:
        wait_until(lambda: "0%, 0 of 40 done" in follower.view, "the view", 30)
        (batch,) = batches.newest_first(database, 1)
        succeed(database, claim(database, batch.id, 10))
        wait_until(lambda: "25%, 10 of 40 done" in follower.view, "the progress")
        assert "at work    nobody" in follower.view
        assert "\x1b[2J" not in follower.written
        follower.resize(50, 12)
        wait_until(lambda: "done: " in follower.view, "the view in the smaller window")
        assert len(follower.view.splitlines()) <= 12
        assert follower.written.count("\x1b[2J") == 1
        moves.cancel(database, batch.id)
        assert follower.wait() == 0
        assert f"{batch.id}: cancelled" in follower.view

    def test_control_c_leaves_the_view_and_the_cursor(self, follower: TerminalCommand) -> None:
        wait_until(lambda: "0 of 40 done" in follower.view, "the view", 30)
        follower.send(signal.SIGINT)
        assert follower.wait() == 130
        assert "0 of 40 done" in follower.view
        assert follower.written.rindex("\x1b[?25h") > follower.written.rindex("\x1b[?25l")
        assert "Traceback" not in follower.written
