"""One request of a caller and its answer, as bytes: what the ASGI server gives and takes, without a layer between."""

from starlette.types import Receive, Scope, Send

from gateway.upstream import Headers


class Exchange:
    """`arrived` is when the request's head was in, on the clock that measures seconds."""

    __slots__ = ("_send", "arrived", "has_started", "headers", "method", "path", "receive", "target")

    def __init__(self, scope: Scope, receive: Receive, send: Send, arrived: float) -> None:
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        query: bytes = scope["query_string"]
        self.target: bytes = scope["raw_path"] + (b"?" + query if query else b"")
        self.headers: Headers = scope["headers"]
        self.receive = receive
        self.arrived = arrived
        self.has_started = False
        self._send = send

    def header(self, name: bytes) -> bytes | None:
        """The first value under a name in lower case."""
        return next((value for key, value in self.headers if key == name), None)

    async def start(self, status: int, headers: Headers) -> None:
        """Send the answer's head."""
        self.has_started = True
        await self._send({"type": "http.response.start", "status": status, "headers": headers})

    async def write(self, chunk: bytes) -> None:
        """Send a piece of the answer's body; waits while the caller does not read."""
        await self._send({"type": "http.response.body", "body": chunk, "more_body": True})

    async def end(self) -> None:
        """The answer is complete. Left out, the server cuts the connection, and the caller knows that it is not."""
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})
