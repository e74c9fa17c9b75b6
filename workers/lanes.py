"""HTTP connections of their own, one for each call at a time.

A connection pool looks through all of its connections twice for every request: with 200 of them that is a third of
what a call costs. Lanes are pools of one connection, and the lane used last is taken first.
"""

import asyncio
from collections.abc import AsyncIterator

import httpx2

KEEP_ALIVE_SECONDS = 3.0  # servers close idle connections after 5 s or more: never reuse one that is about to go


class Lanes(httpx2.AsyncBaseTransport):
    """A transport for at most `count` requests at a time; one more waits until one of them is closed."""

    def __init__(self, count: int, *, encrypted: bool) -> None:
        # Loading the certificates costs 90 ms; where nothing is encrypted, nothing is verified.
        self._ssl_context = httpx2.create_ssl_context(verify=encrypted)
        self._places = asyncio.Semaphore(count)
        self._free: list[httpx2.AsyncHTTPTransport] = []
        self._all: list[httpx2.AsyncHTTPTransport] = []

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request on a free lane, which stays taken until the response is closed."""
        await self._places.acquire()
        lane = self._free.pop() if self._free else self._new_lane()
        try:
            response = await lane.handle_async_request(request)
        except BaseException:
            self._give_back(lane)
            raise
        assert isinstance(response.stream, httpx2.AsyncByteStream)  # noqa: S101 - for the type checker
        response.stream = _LaneStream(response.stream, self, lane)
        return response

    async def aclose(self) -> None:
        """Close every connection."""
        for lane in self._all:
            await lane.aclose()

    def _new_lane(self) -> httpx2.AsyncHTTPTransport:
        limits = httpx2.Limits(max_connections=1, max_keepalive_connections=1, keepalive_expiry=KEEP_ALIVE_SECONDS)
        lane = httpx2.AsyncHTTPTransport(verify=self._ssl_context, limits=limits)
        self._all.append(lane)
        return lane

    def _give_back(self, lane: httpx2.AsyncHTTPTransport) -> None:
        self._free.append(lane)
        self._places.release()


class _LaneStream(httpx2.AsyncByteStream):
    """A response's body; closing it frees the lane."""

    def __init__(self, stream: httpx2.AsyncByteStream, lanes: Lanes, lane: httpx2.AsyncHTTPTransport) -> None:
        self._stream = stream
        self._lanes = lanes
        self._lane: httpx2.AsyncHTTPTransport | None = lane

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._stream.__aiter__()

    async def aclose(self) -> None:
        lane, self._lane = self._lane, None
        if lane is not None:
            try:
                await self._stream.aclose()
            finally:
                self._lanes._give_back(lane)
