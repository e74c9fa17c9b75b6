"""A real scheduler forecasts while a batch is open, and shows Prometheus what it foresees."""

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from urllib.request import urlopen

import pytest

from jobs.store import forecasts
from jobs.store.database import Database
from scheduler import service
from scheduler.dispatch import Task
from scheduler.metrics import Metrics, served
from scheduler.service import Scheduler
from tests.support.store import claim, submit, succeed
from tests.support.valkey import ValkeyServer
from tests.support.wait import wait_until
from tickets_batch.errors import UserError
from tickets_batch.local.ports import free_port
from tickets_batch.settings import Pool, Settings
from tickets_batch.settings import Scheduler as SchedulerSettings

GPU = {
    "name": "gpu",
    "base_url": "http://127.0.0.1:9/v1",
    "model": "test-model",
    "capacity": {"slots": 20, "tokens": 60_000},
    "protected": {"interactive": {"slots": 8, "tokens": 24_000}, "batch": {"slots": 2, "tokens": 6_000}},
}


class NoQueue:
    """A broker that takes every task and hands none out."""

    def __len__(self) -> int:
        return 0

    def publish(self, task: Task) -> None: ...


@dataclass(frozen=True, slots=True)
class Watched:
    """A scheduler at work, and the address of its metrics."""

    database: Database
    url: str

    def page(self) -> str:
        with urlopen(self.url, timeout=10) as answer:
            page: str = answer.read().decode()
        return page


@pytest.fixture
def watched(database: Database, valkey: ValkeyServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Watched]:
    monkeypatch.setattr(service, "PACE_SECONDS", 0.1)
    listen = f"127.0.0.1:{free_port()}"
    settings = Settings(
        redis_url=valkey.url,
        pool=(Pool.model_validate(GPU),),
        scheduler=SchedulerSettings(metrics_listen=listen),
    )
    made = Scheduler(settings, database, NoQueue(), at_once=8, task_seconds=1.0)
    stop = threading.Event()
    thread = threading.Thread(target=made.run, args=(stop,))
    thread.start()
    yield Watched(database, f"http://{listen}/metrics")
    stop.set()
    thread.join()


def test_a_batch_is_shown_until_it_ends(watched: Watched) -> None:
    batch_id = submit(watched.database, 3, deadline_at=watched.database.now() + timedelta(hours=1)).batch_id
    wait_until(lambda: forecasts.latest(watched.database, batch_id), "a forecast", timeout_seconds=30)
    shown = f'tickets_batch_batch_pace{{batch="{batch_id}",pace="will_miss"}} 0.0'
    wait_until(lambda: shown in watched.page(), "its pace", timeout_seconds=30)
    succeed(watched.database, claim(watched.database, batch_id))
    wait_until(lambda: batch_id not in watched.page(), "its leaving", timeout_seconds=30)


def test_an_address_that_is_taken_is_said_in_one_line() -> None:
    listen = f"127.0.0.1:{free_port()}"
    refused = pytest.raises(UserError, match="metrics_listen: cannot listen")
    with served(Metrics(), listen), refused, served(Metrics(), listen):
        pass


def test_without_an_address_nothing_listens() -> None:
    before = threading.active_count()
    with served(Metrics(), None):
        assert threading.active_count() == before
