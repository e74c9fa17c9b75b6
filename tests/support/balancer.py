"""A plain TCP balancer: each connection goes to the next server in turn."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from itertools import cycle
from types import TracebackType
from typing import Self


class Balancer:
    """An async context manager that listens on loopback; it knows nothing of what it carries."""

    def __init__(self, ports: Sequence[int]) -> None:
        self._ports = cycle(ports)
        self._server: asyncio.Server | None = None
        self._carrying: set[asyncio.Task[None]] = set()

    @property
    def base_url(self) -> str:
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/v1"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._carry, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._carrying:
            task.cancel()
        await asyncio.gather(*self._carrying, return_exceptions=True)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task: asyncio.Task[None] | None = asyncio.current_task()
        assert task is not None
        self._carrying.add(task)
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", next(self._ports))
            there = asyncio.create_task(_pass_on(reader, far_writer))
            back = asyncio.create_task(self._pass_back(far_reader, writer))
            try:
                # A side that ends takes the other with it: an engine then sees that its client is gone.
                await asyncio.wait({there, back}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for direction in (there, back):
                    direction.cancel()
                await asyncio.gather(there, back, return_exceptions=True)
                far_writer.close()
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            writer.close()
            self._carrying.discard(task)

    async def _pass_back(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await _pass_on(reader, writer)


class Buffering(Balancer):
    """One that keeps a stream of events back until it has ended or fills a buffer, for as long as `is_buffering`."""

    def __init__(self, ports: Sequence[int], most_bytes: int = 1_000_000) -> None:
        super().__init__(ports)
        self._most_bytes = most_bytes
        self.is_buffering = True

    async def _pass_back(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        kept = b""
        with suppress(ConnectionError):
            while data := await reader.read(65536):
                kept += data
                has_ended = kept.endswith(b"\r\n0\r\n\r\n") or b"text/event-stream" not in kept
                if self.is_buffering and not has_ended and len(kept) < self._most_bytes:
                    continue
                writer.write(kept)
                kept = b""
                await writer.drain()


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
