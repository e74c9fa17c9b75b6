"""A real scheduler forecasts while a batch is open, and shows Prometheus what it foresees."""

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from urllib.error import URLError
from urllib.request import urlopen

import pytest
from prometheus_client import CollectorRegistry

from jobs.store import claims, forecasts
from jobs.store.database import Database
from scheduler import service
from scheduler.dispatch import Task
from scheduler.scrape import served
from scheduler.service import Scheduler
from tests.support.store import claim, submit, succeed
from tests.support.valkey import ValkeyServer
from tests.support.wait import wait_until
from tickets_batch.errors import UserError
from tickets_batch.local.ports import free_port
from tickets_batch.settings import Pool, Settings
from tickets_batch.settings import Scheduler as SchedulerSettings

KEY = "scheduler.metrics_listen"
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
        """What it shows; nothing before it listens."""
        try:
            with urlopen(self.url, timeout=10) as answer:
                page: str = answer.read().decode()
        except URLError:
            return ""
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


def test_tickets_taken_back_from_a_silent_worker_are_counted(watched: Watched) -> None:
    batch_id = submit(watched.database, 3).batch_id
    claims.claim(watched.database, batch_id, 2, "worker-1", lease_seconds=0.1)
    wait_until(lambda: "tickets_batch_scheduler_reaped_total 2.0" in watched.page(), "both", timeout_seconds=30)


def test_a_pool_is_shown_as_its_ledger_has_it(watched: Watched) -> None:
    shown = 'tickets_batch_pool_condition{condition="blind",pool="gpu"} 1.0'
    wait_until(lambda: shown in watched.page(), "a pool that nothing tells of", timeout_seconds=30)
    assert 'tickets_batch_pool_floor_slots{pool="gpu"} 2.0' in watched.page()


def test_an_address_that_is_taken_is_said_in_one_line() -> None:
    listen = f"127.0.0.1:{free_port()}"
    refused = pytest.raises(UserError, match=f"cannot listen on {listen}: Address already in use; change {KEY}")
    with served(CollectorRegistry(), listen, KEY), refused, served(CollectorRegistry(), listen, KEY):
        pass


def test_without_an_address_nothing_listens() -> None:
    before = threading.active_count()
    with served(CollectorRegistry(), None, KEY):
        assert threading.active_count() == before
