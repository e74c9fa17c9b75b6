"""A night's tasks, with Flower looking on and without: what it costs the worker, and what it takes itself."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest

from scheduler.dispatch import Task
from scheduler.simulation.engine.profile import EngineProfile
from tests.engine.process import EngineProcess
from tests.support.at_work import wait_until_at_work
from tests.support.flower import Flower, start_flower
from tests.support.night import Night
from tests.support.wait import wait_until
from workers.app import create_app
from workers.queue import TaskQueue

pytest.importorskip("flower")
pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(900)]

TASKS = 2_400  # ten hours of two processes with a task each half minute
ROUNDS = 2
MOST_MB = 200
MOST_SLOWER = 1.25
MOST_PAGE_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Site:
    """`tickets-batch up` with one worker and a batch that has ended: its tasks have nothing to do."""

    night: Night
    batch_id: str

    @property
    def redis_url(self) -> str:
        url = self.night.redis_url()
        assert url
        return url

    def tasks_per_second(self) -> float:
        """Queue a night's tasks, and wait until the worker has done them."""
        with create_app(self.redis_url) as app:
            queue = TaskQueue(app)
            began = time.monotonic()
            for _ in range(TASKS):
                queue.publish(Task(self.batch_id, 1, 1.0))
            wait_until(lambda: len(queue) == 0, "the queue to be empty", 300)
            return TASKS / (time.monotonic() - began)


@pytest.fixture
def night(tmp_path: Path) -> Iterator[Night]:
    made = Night(tmp_path)
    yield made
    made.close()


@pytest.fixture
def site(night: Night) -> Iterator[Site]:
    with EngineProcess(EngineProfile.instant()) as engine:
        night.configure(engine.base_url, processes=1)
        night.tickets(f"Where is parcel {number}?" for number in range(5))
        night.start("up")
        wait_until_at_work(night)
        batch_id = night.run("submit", "--all", code=0).out.strip()
        night.wait_until_done(5)
        yield Site(night, batch_id)


def megabytes(process: psutil.Process) -> float:
    return float(process.memory_info().rss / 1e6)


def seconds_of(flower: Flower, path: str) -> float:
    began = time.monotonic()
    assert flower.ask(path).status == 200
    return time.monotonic() - began


def test_a_night_with_flower_and_without(site: Site) -> None:
    alone = [site.tasks_per_second() for _ in range(ROUNDS)]
    flower = start_flower(site.night)
    wait_until(flower.answers, "Flower to answer", 30)
    process = psutil.Process(flower.command.pid)
    idle_mb, idle_seconds = megabytes(process), sum(process.cpu_times()[:2])
    watched = []
    sizes = []
    for _ in range(ROUNDS):
        watched.append(site.tasks_per_second())
        sizes.append(megabytes(process))
    cpu_seconds = sum(process.cpu_times()[:2]) - idle_seconds
    pages = {path: seconds_of(flower, path) for path in ("/workers", "/tasks", "/api/tasks?limit=100")}
    shown = len(flower.tasks())
    print(f"\ntasks a second without Flower: {', '.join(f'{rate:.0f}' for rate in alone)}")
    print(f"tasks a second with Flower:    {', '.join(f'{rate:.0f}' for rate in watched)}")
    print(
        f"Flower: {idle_mb:.0f} MB at first, {', '.join(f'{size:.0f}' for size in sizes)} MB after each {TASKS} tasks"
    )
    print(f"its CPU: {1000 * cpu_seconds / (ROUNDS * TASKS):.2f} ms a task; it shows {shown} tasks")
    print(f"pages: {', '.join(f'{path} {1000 * seconds:.0f} ms' for path, seconds in pages.items())}")
    assert shown <= 1_000
    assert max(sizes) < MOST_MB
    assert max(alone) < max(watched) * MOST_SLOWER
    assert max(pages.values()) < MOST_PAGE_SECONDS
