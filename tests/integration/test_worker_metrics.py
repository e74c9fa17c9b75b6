"""A worker on a real engine shows its calls, its tickets and its estimates; never what a ticket says."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client import generate_latest

from jobs.store import batches
from jobs.store.database import Database
from scheduler.ledger import Ledger
from scheduler.permit import PublishedLimit
from scheduler.pools import found_ledgers
from scheduler.simulation.engine.profile import EngineProfile
from tests.engine.process import EngineThread
from tests.support.shift import POOL, pool_settings, submit
from tests.support.valkey import ValkeyServer
from tests.support.wait import wait_until
from tickets_batch.settings import Settings
from workers.runtime import Runtime

WORD = "Zwetschgenknoedel"
COUNT = 40


@pytest.fixture
def engine() -> Iterator[EngineThread]:
    with EngineThread(EngineProfile.instant()) as running:
        yield running


@pytest.fixture
def runtime(database: Database, valkey: ValkeyServer, engine: EngineThread, tmp_path: Path) -> Iterator[Runtime]:
    settings = Settings(home=tmp_path, redis_url=valkey.url, pool=(pool_settings(engine.base_url),))
    asyncio.run(found_ledgers(valkey.url, settings.pool))
    asyncio.run(_all_is_free(valkey.url))
    made = Runtime(settings, database, "worker-1")
    made.start()
    yield made
    made.stop(grace_seconds=1.0)


async def _all_is_free(redis_url: str) -> None:
    ledger = Ledger.connect(redis_url, "gpu", POOL)
    await ledger.publish(PublishedLimit(POOL.most_batch, POOL.most_batch.tokens), ttl_seconds=600, leader_epoch=1)
    await ledger.aclose()


def value(runtime: Runtime, name: str, **labels: str) -> float | None:
    return runtime.metrics.registry.get_sample_value(f"tickets_batch_worker_{name}", labels)


def test_what_a_worker_did_is_on_its_page(database: Database, runtime: Runtime, engine: EngineThread) -> None:
    batch_id = submit(database, [f"{WORD}: where is parcel {number}?" for number in range(COUNT)])
    assert value(runtime, "in_flight", pool="gpu") == 0
    runtime.drive(batch_id, at_once=8, seconds=30.0)
    wait_until(lambda: batches.get(database, batch_id).succeeded == COUNT, "all labels")
    wait_until(lambda: value(runtime, "unwritten") == 0, "the writer to say so")
    batch = batches.get(database, batch_id)
    assert value(runtime, "calls_total", pool="gpu", outcome="answered") == COUNT == len(engine.log())
    assert value(runtime, "jobs_total", pool="gpu", outcome="succeeded") == COUNT
    assert value(runtime, "tokens_total", pool="gpu", kind="prompt") == batch.prompt_tokens
    assert value(runtime, "tokens_total", pool="gpu", kind="completion") == batch.completion_tokens
    assert value(runtime, "call_seconds_count", pool="gpu") == COUNT
    assert value(runtime, "ttft_seconds_count", pool="gpu") == COUNT
    assert value(runtime, "estimates_total", pool="gpu") == COUNT
    assert 0 <= (value(runtime, "estimate_error_ratio", pool="gpu") or -1) < 2
    assert (value(runtime, "in_flight", pool="gpu"), value(runtime, "waiting")) == (0, 0)
    page = generate_latest(runtime.metrics.registry).decode()
    assert "parcel" not in page
    assert WORD not in page


def test_a_pool_that_refuses_everything_is_shown_as_blocked(
    database: Database, runtime: Runtime, engine: EngineThread
) -> None:
    engine.change_settings(api_key="another")
    batch_id = submit(database, ["Where is it?"])
    runtime.drive(batch_id, at_once=1, seconds=1.0)
    wait_until(lambda: value(runtime, "blocked", pool="gpu") == 1, "the refusal")
    assert (value(runtime, "calls_total", pool="gpu", outcome="blocked") or 0) >= 1
