"""One caller's connection: how long it may take over a request's head and over reading an answer, and how many are."""

import asyncio
import json

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from gateway.error import Denied, bad_request

HEAD_SECONDS = 10.0  # from the connection, or the first byte of a later head, to the head's end
STALLED_SECONDS = 30.0  # so long a caller may take nothing of an answer that waits for it
TOLD_AT_MOST = 64  # connections over the limit that are told so with a 503; the others are closed at once


class CallerConnection(H11Protocol):
    """What the HTTP server does not bound by itself: slow heads, callers that do not read, and idle connections."""

    _head_timer: asyncio.TimerHandle | None = None
    _stalled_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if self.limit_concurrency is not None and len(self.connections) >= self.limit_concurrency + TOLD_AT_MOST:
            transport.abort()
        else:
            self._watch_head()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state is h11.IDLE and not self.transport.is_closing():
            self._watch_head()
        else:
            self._forget_head()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stalled_timer = self.loop.call_later(STALLED_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._forget_stall()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget_head()
        self._forget_stall()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """What the server calls where the bytes are no HTTP; told like every other error."""
        self._refuse(bad_request("this is no HTTP/1.1 request that can be read"))

    def _watch_head(self) -> None:
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(HEAD_SECONDS, self._head_is_late)

    def _forget_head(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _forget_stall(self) -> None:
        if self._stalled_timer is not None:
            self._stalled_timer.cancel()
            self._stalled_timer = None

    def _head_is_late(self) -> None:
        if not self.conn.trailing_data[0]:
            self.transport.close()  # opened for later use: an answer would be taken for that of the next request
            return
        message = f"the request's head did not arrive within {HEAD_SECONDS:g} s"
        self._refuse(Denied(408, "invalid_request_error", "request_timeout", message))

    def _refuse(self, denied: Denied) -> None:
        """Answer with the error, if no other answer has begun, and close."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            body = json.dumps(denied.body).encode()
            length = str(len(body))
            headers = [("content-type", "application/json"), ("content-length", length), ("connection", "close")]
            for event in (h11.Response(status_code=denied.status, headers=headers), h11.Data(body), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()
