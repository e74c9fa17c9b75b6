"""A broker that goes away in the middle: connections are let in by a proxy whose server is gone, and reset."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from scheduler.dispatch import QueueUnavailable, Task
from tests.chaos.links import Links, Streams
from tests.support.night import Night
from tests.support.valkey import ValkeyServer
from tests.support.wait import wait_until
from workers.app import create_app
from workers.queue import TaskQueue

pytestmark = pytest.mark.long


class Leaving:
    """The way to a server that takes so many connections more, and then none."""

    def __init__(self, port: int, connections: int) -> None:
        self._port = port
        self._connections = connections

    async def connect(self) -> Streams:
        self._connections -= 1
        if self._connections < 0:
            raise ConnectionRefusedError
        return await asyncio.open_connection("127.0.0.1", self._port)


@pytest.fixture
def links() -> Iterator[Links]:
    with Links() as made:
        yield made


def publish(queue: TaskQueue) -> None:
    queue.publish(Task("batch_1", 4, 1.0))


@pytest.mark.parametrize(("use", "connections"), [(len, 0), (len, 1), (publish, 0), (publish, 1)])
def test_a_broker_that_goes_is_away_whenever_it_goes(
    valkey: ValkeyServer, links: Links, use: Callable[[TaskQueue], object], connections: int
) -> None:
    server = Leaving(valkey.port, connections)
    queue = TaskQueue(create_app(f"redis://127.0.0.1:{links.add('scheduler-1 - redis', server.connect)}/0"))
    with pytest.raises(QueueUnavailable, match="the broker does not answer"):
        use(queue)


def test_an_idle_worker_whose_broker_fell_silent_takes_the_next_task(
    valkey: ValkeyServer, links: Links, tmp_path: Path
) -> None:
    """Nobody resets its connection: it has to find out by itself."""
    away = "worker-1 - redis"
    night = Night(tmp_path)
    night.configure(
        "http://127.0.0.1:9/v1", redis_url=f"redis://127.0.0.1:{links.to_port(away, valkey.port)}/0", processes=1
    )
    queue = TaskQueue(create_app(valkey.url))
    night.run("db", "upgrade", code=0)
    worker = night.start("worker")

    def taken() -> int:
        return worker.err.count("there is no batch batch_1")

    try:
        publish(queue)
        wait_until(lambda: taken() == 1, "the worker to take a task", 60)
        links.begin("half-open", away)

        def takes_another() -> bool:
            if len(queue) == 0:  # as the scheduler does: what was sent into the silence is lost
                publish(queue)
            return taken() > 1

        wait_until(takes_another, "the worker to take another", 60)
    finally:
        night.close()
