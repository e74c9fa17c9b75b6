"""One HTTP/1.1 connection to a model server, for one request at a time.

asyncio's transport and h11 with nothing between them: through a general HTTP client a chat request takes the gateway
half as much CPU again, and a ticket the worker twice as much. A request goes out in one piece, and all that has come in
of an answer is handed on at once.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from ssl import SSLContext
from typing import Self

import h11

WRITE_SECONDS = 30.0
KEEP_ALIVE_SECONDS = 3.0  # servers close idle connections after 5 s or more: never reuse one that is about to go
HEAD_BYTES = 64 * 1024
UNREAD_BYTES = 256 * 1024  # beyond them the server waits
PIECES = 256  # taken in before others have their turn
INFORMATIONAL = 16  # heads that announce another one, before the one that counts
NEXT_ADDRESS_SECONDS = 0.25  # RFC 8305

Content = bytes | AsyncIterator[bytes] | None

# To h11 what goes out ready-made is this request: how an answer is framed depends on no more of what was asked.
_READY = h11.Request(method="POST", target="/", headers=[("host", "lane"), ("content-length", "0")])
_READY_END = h11.EndOfMessage()


class Broken(Exception):
    """The connection broke, or what came over it is no HTTP."""


class Silent(Broken):
    """Nothing came, or nothing was taken, for too long."""


class Unreachable(Broken):
    """No connection could be made, for `reason`; a time-out is one too."""

    def __init__(self, reason: OSError) -> None:
        super().__init__(type(reason).__name__)
        self.reason = reason


class Lane(asyncio.Protocol):
    """A connection. For one event loop; every method but `abort` and `rest` may raise Broken."""

    def __init__(self) -> None:
        self._h11 = h11.Connection(h11.CLIENT, max_incomplete_event_size=HEAD_BYTES)
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._waiter: asyncio.Future[None] | None = None  # for what comes in, or until more can go out
        self._unread = 0
        self._reading_is_paused = False
        self._writing_is_paused = False
        self._is_over = False  # nothing more comes in
        self._is_whole = False  # the answer is
        self._rests_since: float | None = None
        self.has_heard = False  # anything of the answer to this request

    @classmethod
    async def to(cls, host: str, port: int, ssl_context: SSLContext | None, connect_seconds: float) -> Self:
        """A new connection. Raises Unreachable."""
        try:
            async with asyncio.timeout(connect_seconds):
                _, lane = await asyncio.get_running_loop().create_connection(
                    cls, host, port, ssl=ssl_context, happy_eyeballs_delay=NEXT_ADDRESS_SECONDS
                )
        except OSError as error:
            raise Unreachable(error) from error
        return lane

    # --- told by the loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - for the type checker
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if self._rests_since is not None:  # nobody has asked: it must not become the next one's answer
            self.abort()
            return
        self.has_heard = True
        self._h11.receive_data(data)
        self._unread += len(data)
        if self._unread > UNREAD_BYTES and not self._reading_is_paused and self._transport is not None:
            self._reading_is_paused = True
            self._transport.pause_reading()
        if not self._writing_is_paused:
            self._wake()

    def pause_writing(self) -> None:
        self._writing_is_paused = True

    def resume_writing(self) -> None:
        self._writing_is_paused = False
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._writing_is_paused = False
        if not self._is_over:
            self._is_over = True
            self._h11.receive_data(b"")  # an answer may end with its connection
        self._wake()

    # --- for a request

    @property
    def is_fresh(self) -> bool:
        """Whether the server surely still keeps this resting connection."""
        is_young = self._rests_since is not None and time.monotonic() < self._rests_since + KEEP_ALIVE_SECONDS
        return is_young and not self._is_over

    async def ask(self, request: h11.Request, content: Content, silence_seconds: float) -> h11.Response:
        """Send a request; the head of its answer, which must be whole `silence_seconds` after the request is out."""
        self._begin()
        try:
            await self._send(request, content)
        except h11.LocalProtocolError as error:
            raise Broken(str(error)) from error
        return await self._head(self._loop.time() + silence_seconds)

    async def ask_ready(self, written: bytes) -> h11.Response:
        """Send a request that is written out whole; the head of its answer, for which the caller sets the limit."""
        self._begin()
        self._h11.send(_READY)
        self._h11.send(_READY_END)
        if self._transport is not None:
            self._transport.write(written)
        return await self._head(None)

    async def read(self, silence_seconds: float | None = None) -> bytes:
        """What has come in of the body, as soon as there is something; nothing at its end.

        Raises Silent after `silence_seconds`; without them the caller sets the limit.
        """
        parts: list[bytes] = []
        while not self._is_whole:
            event = self._next()
            if isinstance(event, h11.Data):
                parts.append(event.data)
                if len(parts) == PIECES:
                    await asyncio.sleep(0)
                    break
            elif event is not h11.NEED_DATA:
                self._is_whole = True
            elif parts:
                break
            else:
                await self._wait(None if silence_seconds is None else self._loop.time() + silence_seconds)
        return b"".join(parts)

    def rest(self) -> bool:
        """Make ready for the next request; False where that cannot be."""
        can_rest = self._h11.our_state is h11.DONE and self._h11.their_state is h11.DONE
        if self._is_over or not can_rest or self._h11.trailing_data[0]:
            return False
        self._h11.start_next_cycle()
        self._rests_since = time.monotonic()
        return True

    def abort(self) -> None:
        """Close the connection at once."""
        if self._transport is not None:
            self._transport.abort()

    # --- inside

    def _begin(self) -> None:
        self._rests_since = None
        self._is_whole = self.has_heard = False

    async def _head(self, deadline: float | None) -> h11.Response:
        announced = 0
        while True:
            event = self._next()
            if isinstance(event, h11.Response):
                return event
            if event is h11.NEED_DATA:
                await self._wait(deadline)
            elif isinstance(event, h11.InformationalResponse) and announced < INFORMATIONAL:
                announced += 1
            else:
                raise Broken("the connection ended without an answer")

    async def _send(self, request: h11.Request, content: Content) -> None:
        head = self._h11.send(request) or b""
        if content is None or isinstance(content, bytes):
            body = self._h11.send(h11.Data(data=content)) if content else None
            await self._write(head + (body or b"") + (self._h11.send(h11.EndOfMessage()) or b""))
            return
        await self._write(head)
        async for part in content:
            if self._is_over:
                return  # it may have answered before the end
            await self._write(self._h11.send(h11.Data(data=part)) or b"")
        await self._write(self._h11.send(h11.EndOfMessage()) or b"")

    async def _write(self, data: bytes) -> None:
        if self._transport is not None and data:
            self._transport.write(data)
        while self._writing_is_paused:
            await self._wait(self._loop.time() + WRITE_SECONDS)

    def _next(self) -> object:
        try:
            return self._h11.next_event()
        except h11.RemoteProtocolError as error:
            raise Broken(str(error)) from error

    async def _wait(self, deadline: float | None) -> None:
        """For the next thing that happens here, until a moment on the loop's clock if there is one."""
        if self._is_over:
            raise Broken("the connection broke")
        self._unread = 0
        if self._reading_is_paused and self._transport is not None:
            self._reading_is_paused = False
            self._transport.resume_reading()
        self._waiter = self._loop.create_future()
        timer = None if deadline is None else self._loop.call_at(deadline, self._be_late)
        try:
            await self._waiter
        finally:
            if timer is not None:
                timer.cancel()
            self._waiter = None

    def _be_late(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(Silent("nothing happened in time"))

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
