"""The scheduler keeps the record of its pools while a batch is at work, on a real ledger."""

import threading
from collections.abc import Iterator
from datetime import timedelta

import pytest

from jobs.store import events, samples
from jobs.store.database import Database
from scheduler import journal, service
from scheduler.dispatch import Task
from scheduler.service import Scheduler
from tests.support.store import submit
from tests.support.valkey import ValkeyServer
from tests.support.wait import wait_until
from tickets_batch.settings import Pool, Settings

SHARED = {
    "name": "gpu",
    "base_url": "http://127.0.0.1:9/v1",
    "model": "test-model",
    "capacity": {"slots": 20, "tokens": 60_000},
    "protected": {"interactive": {"slots": 8, "tokens": 24_000}, "batch": {"slots": 2, "tokens": 6_000}},
}
DEEP = {**SHARED, "name": "deep", "protected": {"batch": {"slots": 20, "tokens": 60_000}}}


class NoQueue:
    """A broker that takes every task and hands none out."""

    def __len__(self) -> int:
        return 0

    def publish(self, task: Task) -> None: ...


@pytest.fixture
def scheduler(database: Database, valkey: ValkeyServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scheduler]:
    monkeypatch.setattr(service, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(journal, "SAMPLE_SECONDS", 0.2)
    pools = tuple(Pool.model_validate(pool) for pool in (SHARED, DEEP))
    made = Scheduler(Settings(redis_url=valkey.url, pool=pools), database, NoQueue(), at_once=8, task_seconds=1.0)
    stop = threading.Event()
    thread = threading.Thread(target=made.run, args=(stop,))
    thread.start()
    yield made
    stop.set()
    thread.join()


@pytest.mark.usefixtures("scheduler")
def test_samples_and_changes_of_every_pool(database: Database) -> None:
    submit(database, 3)
    for pool in ("gpu", "deep"):
        since = database.now() - timedelta(hours=1)
        wait_until(
            lambda: len(samples.between(database, pool, since, database.now())) >= 3,  # noqa: B023
            f"three samples of {pool}",
            timeout_seconds=30,
        )
        assert events.of_pool(database, pool, 1)
    assert [event.detail["to"] for event in events.of_pool(database, "deep", 9)] == ["dedicated"]
    assert samples.between(database, "deep", since, database.now())[0].limit_slots == 20


@pytest.mark.usefixtures("scheduler")
def test_it_goes_on_after_a_ledger_was_lost(database: Database, valkey: ValkeyServer) -> None:
    submit(database, 3)
    wait_until(lambda: events.of_pool(database, "gpu", 1), "the first word of the pool", timeout_seconds=30)
    with valkey.client() as client:
        client.flushall()
    seen = database.now()
    wait_until(
        lambda: samples.between(database, "gpu", seen, database.now()),
        "a sample after the ledger was lost",
        timeout_seconds=30,
    )
