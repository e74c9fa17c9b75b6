"""The caller at the other end: its request's body, its going away, and the keys it may show."""

import asyncio
import hmac
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Self

from starlette.types import Receive

from gateway.error import Denied
from tickets_batch.errors import SettingsError
from tickets_batch.settings import Secret

BODY_SECONDS = 30.0


class Gone(Exception):
    """The caller has closed its connection: nobody reads an answer any more."""


class WhileThere:
    """Cancels what runs in its `async with` block when the caller goes, and raises Gone in its place.

    It listens from `watch` on, until the block is left: before that the request's body is still to be read.
    """

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._is_gone = False
        self._watcher: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - for the type checker
        self._task = task
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._watcher is not None:
            self._watcher.cancel()
        if self._is_gone and self._task.uncancel() == 0 and kind is asyncio.CancelledError:
            raise Gone from error

    def watch(self) -> None:
        """The body is in: what is heard next is that the caller goes."""
        self._watcher = asyncio.create_task(self._watch())

    async def body(self, silence_seconds: float) -> AsyncIterator[bytes]:
        """The body as it comes, and then `watch`. Raises Denied (408) after so long without any of it, Gone."""
        parts = body_parts(self._receive)
        while True:
            try:
                async with asyncio.timeout(silence_seconds):
                    part = await anext(parts)
            except StopAsyncIteration:
                break
            except TimeoutError:
                raise _too_slow(f"nothing of the body has arrived for {silence_seconds:g} s") from None
            yield part
        self.watch()

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            continue
        self._is_gone = True
        self._task.cancel()


async def read_body(receive: Receive, declared: bytes | None, most_bytes: int) -> bytes:
    """The whole body. Raises Denied (413, 408) for one that is too large or too slow, Gone."""
    if declared is not None and declared.isdigit() and int(declared) > most_bytes:
        raise _too_large(most_bytes)
    parts = []
    size = 0
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for part in body_parts(receive):
                size += len(part)
                if size > most_bytes:
                    raise _too_large(most_bytes)
                parts.append(part)
    except TimeoutError:
        raise _too_slow(f"the body did not arrive within {BODY_SECONDS:g} s") from None
    return parts[0] if len(parts) == 1 else b"".join(parts)


async def body_parts(receive: Receive) -> AsyncIterator[bytes]:
    """The body as it comes. Raises Gone."""
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Gone
        if part := message.get("body", b""):
            yield part
        more = message.get("more_body", False)


class Keys:
    """The keys that callers may show. Raises SettingsError when there is none in the secret."""

    def __init__(self, secret: Secret) -> None:
        self._keys = [key.encode() for key in secret.reveal().replace(",", " ").split()]
        if not self._keys:
            raise SettingsError("gateway.keys names no key: write one a line, or leave gateway.keys out")

    def check(self, authorization: bytes | None) -> None:
        """Raises Denied (401) unless it is `Bearer` and one of the keys; takes the same time for each wrong one."""
        scheme, _, shown = (authorization or b"").partition(b" ")
        # A list, not a generator: each key is compared, whichever it is.
        known = [hmac.compare_digest(shown.strip(), key) for key in self._keys]
        if scheme.lower() != b"bearer" or not any(known):
            message = "this gateway does not know the key: show one of its keys as Authorization: Bearer KEY"
            raise Denied(401, "invalid_request_error", "invalid_api_key", message, {"www-authenticate": "Bearer"})


def _too_slow(message: str) -> Denied:
    return Denied(408, "invalid_request_error", "request_timeout", message, {"connection": "close"})


def _too_large(most_bytes: int) -> Denied:
    message = f"the body is larger than {most_bytes} bytes: send less, or raise gateway.max_body_bytes"
    return Denied(413, "invalid_request_error", "request_too_large", message, {"connection": "close"})
