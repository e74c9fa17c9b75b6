"""Connections to one model server, one for each call at a time."""

import asyncio
import os
import re
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Self

import h11
import httpx2

from tickets_batch.lane import Broken, Lane, Unreachable

_ERRNO = re.compile(r"\[Errno (\d+)\]")


class Answer(httpx2.AsyncByteStream):
    """A response of which the head is here; use it as a context manager: at its end the lane is free.

    An answer that is left before its end takes its connection with it, so that the server stops.
    """

    def __init__(self, lanes: "Lanes", lane: Lane, head: h11.Response) -> None:
        self.status = head.status_code
        self.headers = httpx2.Headers(list(head.headers))
        self._lanes = lanes
        self._lane = lane

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lanes.give_back(self._lane)

    @property
    def content(self) -> AsyncIterator[bytes]:
        """The body as it comes, unpacked where it was packed. Raises httpx2.HTTPError when it breaks off."""
        if "content-encoding" in self.headers:
            return httpx2.Response(self.status, headers=self.headers, stream=self).aiter_bytes()
        return aiter(self)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            while received := await self._lane.read():
                yield received
        except Broken as error:
            raise httpx2.ReadError(str(error)) from error


class Lanes:
    """At most `count` calls at a time, one more waits until one of them has ended; the lane used last is taken first.

    Goes to the URL's host and nowhere else, whatever proxies the environment names. For one event loop.
    """

    def __init__(self, url: httpx2.URL, count: int, connect_seconds: float) -> None:
        encrypted = url.scheme != "http"
        self._host = url.host
        self._port = url.port or (443 if encrypted else 80)
        self._connect_seconds = connect_seconds
        # Loading the certificates costs 90 ms; where nothing is encrypted, nothing is verified.
        self._ssl_context = httpx2.create_ssl_context() if encrypted else None
        self._places = asyncio.Semaphore(count)
        self._free: list[Lane] = []

    async def send(self, request: bytes) -> Answer:
        """Send a whole request and wait for the head of its answer.

        Raises httpx2.ConnectError, httpx2.ConnectTimeout; another httpx2.HTTPError when the connection breaks.
        """
        await self._places.acquire()
        lane = None
        try:
            lane = self._free_one() or await self._connect()
            return Answer(self, lane, await lane.ask_ready(request))
        except BaseException as error:
            if lane is not None:
                lane.abort()
            self._places.release()
            if isinstance(error, Broken):
                raise httpx2.RemoteProtocolError(str(error)) from error
            raise

    def give_back(self, lane: Lane) -> None:
        """The lane's answer is of no more use; whether the connection is depends on whether it was read to its end."""
        if lane.rest():
            self._free.append(lane)
        else:
            lane.abort()
        self._places.release()

    def close(self) -> None:
        """Close every connection that carries no call."""
        while self._free:
            self._free.pop().abort()

    def _free_one(self) -> Lane | None:
        while self._free:
            lane = self._free.pop()
            if lane.is_fresh:
                return lane
            lane.abort()
        return None

    async def _connect(self) -> Lane:
        try:
            return await Lane.to(self._host, self._port, self._ssl_context, self._connect_seconds)
        except Unreachable as error:
            if isinstance(error.reason, TimeoutError):
                raise httpx2.ConnectTimeout(f"no connection within {self._connect_seconds:g} s") from error
            raise httpx2.ConnectError(str(error.reason)) from _of_one(error.reason)


def _of_one(error: OSError) -> OSError:
    """The reason of the last address where asyncio tells those of several, which it does in words alone."""
    found = _ERRNO.findall(str(error)) if error.errno is None else []
    return OSError(int(found[-1]), os.strerror(int(found[-1]))) if found else error
