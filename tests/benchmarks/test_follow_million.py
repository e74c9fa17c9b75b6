"""`status --follow` of a batch of a million jobs at work, on a terminal: what watching costs, all night."""

import asyncio
import json
import threading
import time
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest

from jobs.store import services
from jobs.store.database import Database
from scheduler.capacity import Amount, PoolCapacity
from scheduler.ledger import Ledger
from scheduler.permit import Ask, Kind, Permit, PublishedLimit
from tests.benchmarks.test_status_million import AT_ONCE, LARGE, grow
from tests.support.night import PYTHON, Night
from tests.support.store import claim, submit, succeed
from tests.support.terminal import TerminalCommand
from tests.support.valkey import ValkeyServer
from tests.support.wait import wait_until

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(900)]

SECONDS = 30.0
MOST_SHARE = 0.03  # of a core
CAPACITY = PoolCapacity(Amount(16, 128_000), protected_interactive=Amount(4, 32_000), floor=Amount(1, 2_000))
NOTE = {"rule": "maximum", "why": "", "reserve": 1}
SOURCES = {"sources": [{"name": "engine", "age_seconds": 0.1, "is_fresh": True}], "is_blind": False}


async def keep_busy(url: str, stop: threading.Event) -> None:
    """A limit five times a second, and a chat request that comes and goes."""
    ledger = Ledger.connect(url, "gpu", CAPACITY, lease_seconds=60)
    await ledger.found()
    while not stop.is_set():
        load = {"in_flight": {"slots": 1, "tokens": 900}, "is_congested": False, **SOURCES}
        note = json.dumps({**NOTE, "load": load, "at": time.time()})
        await ledger.publish(PublishedLimit(Amount(12, 96_000), 3_000), 3, 1, note)
        chat = await ledger.acquire(Kind.INTERACTIVE, Ask(500, 400))
        assert isinstance(chat, Permit)
        await asyncio.sleep(0.1)
        await ledger.first_token(chat)
        await asyncio.sleep(0.1)
        await ledger.release(chat)
    await ledger.aclose()


def work(db: Database, batch_id: str, until: float) -> int:
    """Claims and finishes, about a hundred jobs a second; how many."""
    count = 0
    while time.monotonic() < until:
        held = claim(db, batch_id, AT_ONCE)
        succeed(db, held)
        count += len(held)
        services.beat(db, "scheduler", "one", "here", 1, {})
        services.beat(db, "worker", "one", "here", 2, {})
        time.sleep(0.3)
    return count


def test_watching_a_million_jobs(database: Database, database_url: str, tmp_path: Path, valkey: ValkeyServer) -> None:
    batch_id = submit(database, 1_000).batch_id
    grow(database, batch_id, LARGE)
    night = Night(tmp_path)
    night.configure("http://127.0.0.1:9/v1", chat=4, database_url=database_url, redis_url=valkey.url)
    title = f"{batch_id}: running"
    stop = threading.Event()
    ledger = threading.Thread(target=lambda: asyncio.run(keep_busy(valkey.url, stop)))
    ledger.start()
    follower = TerminalCommand([*PYTHON, "status", batch_id, "--follow"], night.folder, night.environment)
    try:
        wait_until(lambda: f"of {LARGE:,} done" in follower.view, "the view", 60)
        child = psutil.Process(follower.pid)
        before, drawn, began = sum(child.cpu_times()[:2]), follower.written.count(title), time.monotonic()
        done = work(database, batch_id, began + SECONDS)
        seconds = time.monotonic() - began
        share = (sum(child.cpu_times()[:2]) - before) / seconds
        drawn_per_second, view = (follower.written.count(title) - drawn) / seconds, follower.view
        memory_mb = child.memory_info().rss / 2**20
    finally:
        stop.set()
        ledger.join()
        follower.close()
        night.close()
    print(
        f"\n{database.dialect}: {share:.2%} of a core and {memory_mb:.0f} MB at {drawn_per_second:.2f} views a second"
    )
    print(f"while {done:,} jobs were done:\n{view}")
    assert "first token" in view
    assert "tickets/s now" in view
    assert 1.0 < drawn_per_second < 2.1
    assert share < MOST_SHARE
