"""The least of HTTP/1.1 that clients of a model server use, straight on asyncio's transport for speed.

Requests with a Content-Length or a chunked body, keep-alive, pipelining (answered in order), chunked responses.
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from http import HTTPStatus

MAX_HEAD_BYTES = 65_536

_STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ncache-control: no-cache\r\n"
    b"transfer-encoding: chunked\r\n\r\n"
)
_REASONS = {status.value: status.phrase for status in HTTPStatus}


class BadRequest(Exception):
    """The bytes received are not a request that this server can read."""


@dataclass(slots=True)
class HttpRequest:
    method: str
    path: str
    query: str
    headers: dict[str, str]  # names in lower case
    body: bytes


class Exchange:
    """One request and its answer. What is sent is kept until `flush`, so that one answer costs one system call."""

    __slots__ = ("_connection", "_done", "_out", "on_disconnect", "request")

    def __init__(self, connection: "HttpConnection", request: HttpRequest) -> None:
        self._connection = connection
        self._out: list[bytes] = []
        self._done = False
        self.request = request
        self.on_disconnect: Callable[[], None] | None = None

    def respond(
        self,
        status: int,
        body: bytes,
        content_type: str = "application/json",
        headers: Iterable[tuple[str, str]] = (),
    ) -> None:
        """Send a whole answer at once."""
        extra = "".join(f"{name}: {value}\r\n" for name, value in headers)
        head = (
            f"HTTP/1.1 {status} {_REASONS.get(status, '')}\r\ncontent-type: {content_type}\r\n"
            f"content-length: {len(body)}\r\n{extra}\r\n"
        )
        self._out += (head.encode("latin-1"), body)
        self._done = True
        self.flush()

    def start_stream(self) -> None:
        self._out.append(_STREAM_HEAD)

    def send(self, data: bytes) -> None:
        self._out.append(b"%x\r\n%b\r\n" % (len(data), data))

    def end_stream(self) -> None:
        self._out.append(b"0\r\n\r\n")
        self._done = True

    def flush(self) -> None:
        out, self._out = self._out, []
        if out:
            self._connection.write(b"".join(out))
        if self._done:
            self.on_disconnect = None
            self._connection.finish(self)

    def drop(self) -> None:
        """Cut the connection without another byte."""
        self.on_disconnect = None
        self._out.clear()
        self._connection.abort()


class HttpConnection(asyncio.Protocol):
    """One client connection; `handle` gets an Exchange for each request, one at a time."""

    def __init__(self, handle: Callable[[Exchange], None], connections: set["HttpConnection"]) -> None:
        self._handle = handle
        self._connections = connections
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._head: HttpRequest | None = None  # read, its body not yet complete
        self._current: Exchange | None = None
        self._keep_alive = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._connections.discard(self)
        current, self._current = self._current, None
        if current is not None and current.on_disconnect is not None:
            current.on_disconnect()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if self._current is None:
            self._read_requests()

    def write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    def finish(self, exchange: Exchange) -> None:
        if self._current is not exchange:
            return
        self._current = None
        if not self._keep_alive:
            self.close()
        elif self._buffer:
            # Not at once: a long row of pipelined requests would nest as deep.
            asyncio.get_running_loop().call_soon(self._read_requests)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _read_requests(self) -> None:
        if self._current is not None or self._transport is None:
            return
        try:
            request = self._next_request()
        except (BadRequest, ValueError) as error:
            self._keep_alive = False
            self._current = Exchange(self, HttpRequest("", "", "", {}, b""))
            self._current.respond(400, f"{error}\n".encode(), "text/plain")
            return
        if request is not None:
            self._keep_alive = request.headers.get("connection", "").lower() != "close"
            self._current = Exchange(self, request)
            self._handle(self._current)

    def _next_request(self) -> HttpRequest | None:
        """The next whole request in the buffer, or None while bytes are missing."""
        if self._head is None:
            end = self._buffer.find(b"\r\n\r\n")
            if end < 0:
                if len(self._buffer) > MAX_HEAD_BYTES:
                    raise BadRequest(f"the request head is longer than {MAX_HEAD_BYTES} bytes")
                return None
            self._head = _read_head(self._buffer[:end].decode("latin-1"))
            del self._buffer[: end + 4]
            if self._head.headers.get("expect", "").lower() == "100-continue":
                self.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        head = self._head
        if "chunked" in head.headers.get("transfer-encoding", ""):
            found = _read_chunks(self._buffer)
            if found is None:
                return None
            head.body, used = found
        else:
            used = int(head.headers.get("content-length", "0"))
            if len(self._buffer) < used:
                return None
            head.body = bytes(self._buffer[:used])
        del self._buffer[:used]
        self._head = None
        return head


def _read_head(text: str) -> HttpRequest:
    line, *fields = text.split("\r\n")
    try:
        method, target, _ = line.split(" ")
    except ValueError:
        raise BadRequest(f"not a request line: {line[:80]!r}") from None
    path, _, query = target.partition("?")
    headers = {}
    for field in fields:
        name, _, value = field.partition(":")
        headers[name.lower()] = value.strip()
    return HttpRequest(method, path, query, headers, b"")


def _read_chunks(buffer: bytearray) -> tuple[bytes, int] | None:
    """The joined body of a chunked request and how many bytes it took, or None while bytes are missing."""
    parts: list[bytes] = []
    at = 0
    while True:
        end = buffer.find(b"\r\n", at)
        if end < 0:
            return None
        size = int(bytes(buffer[at:end]).partition(b";")[0], 16)
        at = end + 2
        if len(buffer) < at + size + 2:
            return None
        if size == 0:
            return b"".join(parts), at + 2
        parts.append(bytes(buffer[at : at + size]))
        at += size + 2
