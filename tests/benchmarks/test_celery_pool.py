"""Which of Celery's pools: each drives the same task body on the same broker, and is asked the same four things."""

import contextlib
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import psutil  # type: ignore[import-untyped]
import pytest
from celery import Celery

from scheduler.simulation.engine.profile import EngineProfile
from tests.engine.process import EngineProcess
from tests.support.night import CHECKOUT
from tests.support.valkey import ValkeyServer
from tests.support.wait import wait_until
from workers.app import QUEUE, TASK, create_app

CHANGES = 5
SHORT_SECONDS = 0.4
LONG_SECONDS = 5.0
PING_SECONDS = 1.0
SLOW = EngineProfile(step_base_seconds=0.5)  # an answer takes longer than any task here: requests are always in flight


@dataclass(frozen=True, slots=True)
class Findings:
    """What was found of one pool."""

    changeover_ms: float
    memory_mb: float
    answers_ping: bool
    stop_seconds: float
    left_running: int  # requests still at the engine when the worker had ended

    def __str__(self) -> str:
        ping = "yes" if self.answers_ping else "no"
        return (
            f"{self.changeover_ms:8.1f} ms{self.memory_mb:11.0f} MB{ping:>13}"
            f"{self.stop_seconds:14.2f} s{self.left_running:16}"
        )


class PoolWorker:
    """One worker process on a pool, with the notes that its tasks take."""

    def __init__(self, notes: Path, process: subprocess.Popen[bytes], app: Celery) -> None:
        self._notes = notes
        self._app = app
        self.process = process

    def send(self, seconds: float) -> None:
        self._app.send_task(TASK, kwargs={"seconds": seconds}, queue=QUEUE, ignore_result=True)

    def times(self, what: str) -> list[float]:
        lines = self._notes.read_text().splitlines() if self._notes.exists() else []
        return [note["at"] for note in map(json.loads, lines) if note["what"] == what]

    def wait_for(self, what: str, count: int) -> None:
        wait_until(lambda: len(self.times(what)) >= count, f"{count} tasks that have {what}", timeout_seconds=30)

    def memory_mb(self) -> float:
        """Of all its processes; pages that they share are counted once."""
        root = psutil.Process(self.process.pid)
        return float(sum(process.memory_full_info().pss for process in [root, *root.children(recursive=True)]) / 1e6)


@contextlib.contextmanager
def running(pool: str, children: int, valkey: ValkeyServer, base_url: str, folder: Path) -> Iterator[PoolWorker]:
    notes = folder / f"{pool}-{children}.jsonl"
    argv = [sys.executable, "-m", "tests.benchmarks.pool_worker", pool, str(children), valkey.url, base_url, str(notes)]
    with (folder / f"{pool}-{children}.log").open("wb") as log, create_app(valkey.url) as app:
        process = subprocess.Popen(argv, cwd=CHECKOUT, stdout=log, stderr=log)
        family = [psutil.Process(process.pid)]
        try:
            yield PoolWorker(notes, process, app)
            family += family[0].children(recursive=True) if process.poll() is None else []
        finally:
            for member in family:
                with contextlib.suppress(psutil.NoSuchProcess):
                    member.kill()
            process.wait()


def examine(worker: PoolWorker, children: int, engine: EngineProcess, app: Celery) -> Findings:
    for _ in range(children):  # what a process does for the first time is not measured
        worker.send(SHORT_SECONDS)
    worker.wait_for("ends", children)
    for _ in range(CHANGES + children):
        worker.send(SHORT_SECONDS)
    worker.wait_for("ends", CHANGES + 2 * children)
    begun, ended = sorted(worker.times("begins"))[children:], sorted(worker.times("ends"))[children:]
    gaps = [begin - end for begin, end in zip(begun[children:], ended, strict=False)]

    for _ in range(children):
        worker.send(LONG_SECONDS)
    worker.wait_for("begins", CHANGES + 3 * children)
    wait_until(lambda: engine.state()["running"] > 0, "requests in flight")
    answers = app.control.ping(timeout=PING_SECONDS)
    memory_mb = worker.memory_mb()
    sent_at = time.monotonic()
    worker.process.send_signal(signal.SIGTERM)
    worker.process.wait(30)
    stop_seconds = time.monotonic() - sent_at
    return Findings(median(gaps) * 1e3, memory_mb, bool(answers), stop_seconds, engine.state()["running"])


@pytest.mark.benchmark
def test_the_pools_of_celery(valkey: ValkeyServer, tmp_path: Path) -> None:
    found: dict[str, Findings] = {}
    for pool, children in (("threads", 1), ("prefork", 1), ("prefork", 2), ("solo", 1)):
        with valkey.client() as client:
            client.flushall()
        with (
            EngineProcess(SLOW) as engine,
            create_app(valkey.url) as app,
            running(pool, children, valkey, engine.base_url, tmp_path) as worker,
        ):
            found[f"{pool}, {children}"] = examine(worker, children, engine, app)
    titles = ("changeover", 11), ("memory", 14), ("answers", 13), ("SIGTERM to end", 16), ("requests left", 16)
    print(f"\n{'pool, tasks':12}{''.join(f'{title:>{width}}' for title, width in titles)}")
    for name, findings in found.items():
        print(f"{name:12}{findings}")
    ours = found["threads, 1"]
    assert ours.answers_ping
    assert ours.left_running == 0
    assert ours.stop_seconds < LONG_SECONDS / 2, "the task was waited for instead of being ended"
