"""A broker that goes away in the middle: connections are let in by a proxy whose server is gone, and reset."""

import asyncio
from collections.abc import Callable, Iterator

import pytest

from scheduler.dispatch import QueueUnavailable, Task
from tests.chaos.links import Links, Streams
from tests.support.valkey import ValkeyServer
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
