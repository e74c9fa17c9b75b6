"""A TCP proxy of the tests' own: each way from a part to a service can be cut, refused, stalled and half-opened."""

import asyncio
import socket
import struct
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from types import TracebackType
from typing import Self

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Connect = Callable[[], Awaitable[Streams]]

_RESET = struct.pack("ii", 1, 0)  # linger on, for no time: closing sends RST


class Link:
    """One way, on a port of its own. Methods run on the proxy's loop."""

    def __init__(self, connect: Connect, port: int) -> None:
        self._connect = connect
        self._server: asyncio.Server | None = None
        self._flows = asyncio.Event()
        self._flows.set()
        self._open: dict[asyncio.Task[None], asyncio.Event] = {}  # what carries, and whether it is a dead end
        self.port = port  # 0: a free one

    async def listen(self) -> None:
        """Accept connections, always on the same port."""
        self._server = await asyncio.start_server(self._carry, "127.0.0.1", self.port)
        self.port = int(self._server.sockets[0].getsockname()[1])

    async def cut(self) -> None:
        """Reset every connection; new ones are as good as ever."""
        tasks = list(self._open)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def refuse(self) -> None:
        """Reset every connection, and let nobody in until `listen`."""
        if self._server is not None:
            self._server.close()
            self._server = None
        await self.cut()

    def stall(self) -> None:
        """Carry nothing, in either direction, on any connection, until `flow`: nobody is told."""
        self._flows.clear()

    def flow(self) -> None:
        """Carry again, from where it stopped."""
        self._flows.set()

    def half_open(self) -> None:
        """Whatever is connected now leads nowhere for ever, and neither side is told; new connections are good."""
        for dead_end in self._open.values():
            dead_end.set()

    async def close(self) -> None:
        self._flows.set()
        await self.refuse()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task: asyncio.Task[None] | None = asyncio.current_task()
        assert task is not None
        dead_end = self._open[task] = asyncio.Event()
        ends = [writer]
        try:
            await self._flows.wait()
            far_reader, far_writer = await self._connect()
            ends.append(far_writer)
            directions = [
                asyncio.create_task(self._pass_on(reader, far_writer, dead_end)),
                asyncio.create_task(self._pass_on(far_reader, writer, dead_end)),
            ]
            try:
                # A side that ends takes the other with it: an engine then sees that its client is gone.
                await asyncio.wait(directions, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for direction in directions:
                    direction.cancel()
                await asyncio.gather(*directions, return_exceptions=True)
            for end in ends:
                end.close()
        except (OSError, asyncio.CancelledError):
            for end in ends:
                _reset(end)
        finally:
            self._open.pop(task, None)

    async def _pass_on(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, dead_end: asyncio.Event
    ) -> None:
        with suppress(OSError):
            while True:
                data = await reader.read(65536)
                await self._flows.wait()
                if dead_end.is_set():
                    await asyncio.Event().wait()  # until it is cancelled: not even its end is told
                if not data:
                    return
                writer.write(data)
                await writer.drain()


class Links:
    """All ways of one world, on a thread of their own; made by `add`, used by name."""

    def __init__(self, take_port: Callable[[], int] = lambda: 0) -> None:
        self._take_port = take_port
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="links", daemon=True)
        self._links: dict[str, Link] = {}

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for link in self._links.values():
            self._run(link.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def to_port(self, name: str, port: int) -> int:
        """A way to a port of this machine; the port on which it begins."""
        return self.add(name, lambda: asyncio.open_connection("127.0.0.1", port))

    def to_socket(self, name: str, path: str) -> int:
        """A way to a socket file; the port on which it begins."""
        return self.add(name, lambda: asyncio.open_unix_connection(path))

    def begin(self, kind: str, name: str) -> Callable[[], None]:
        """Let a fault begin; what is returned heals it."""
        link = self._links[name]
        match kind:
            case "cut":
                self._run(link.cut())
                return lambda: None
            case "refuse":
                self._run(link.refuse())
                return lambda: self._run(link.listen())
            case "stall":
                self._loop.call_soon_threadsafe(link.stall)
                return lambda: self._call(link.flow)
            case "half-open":
                self._call(link.half_open)
                return lambda: None
            case _:
                raise ValueError(kind)

    def add(self, name: str, connect: Connect) -> int:
        async def made() -> Link:
            link = Link(connect, self._take_port())
            await link.listen()
            return link

        self._links[name] = asyncio.run_coroutine_threadsafe(made(), self._loop).result(10)
        return self._links[name].port

    def _run(self, work: Awaitable[None]) -> None:
        async def run() -> None:
            await work

        asyncio.run_coroutine_threadsafe(run(), self._loop).result(10)

    def _call(self, act: Callable[[], None]) -> None:
        async def call() -> None:
            act()

        self._run(call())


def _reset(writer: asyncio.StreamWriter) -> None:
    connection = writer.get_extra_info("socket")
    if connection is not None:
        with suppress(OSError):
            if connection.family == socket.AF_INET:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    writer.transport.abort()
