"""The model server behind the door: requests passed on to it, answers passed back, both as they come."""

import re
from collections import deque
from collections.abc import AsyncIterator, Sequence

import httpcore2
import httpx2

from gateway.error import Denied
from tickets_batch.errors import SettingsError
from tickets_batch.settings import Pool

CONNECT_SECONDS = 5.0
WRITE_SECONDS = 30.0
KEEP_ALIVE_SECONDS = 3.0  # servers close idle connections after 5 s or more: never reuse one that is about to go

Headers = Sequence[tuple[bytes, bytes]]

# What may go wrong once the answer has begun, or before.
Broken = (httpcore2.NetworkError, httpcore2.ProtocolError, httpcore2.TimeoutException)

# What is said between two neighbours on the way and means nothing to the next.
HOP_BY_HOP = frozenset(
    {
        *(b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"proxy-connection"),
        *(b"te", b"trailer", b"transfer-encoding", b"upgrade"),
    }
)
_SET_ANEW = frozenset({b"host", b"content-length", b"expect"})


class Answer:
    """An answer whose head is in; its body is still to be read, and the answer to be closed."""

    def __init__(self, response: httpcore2.Response, upstream: "Upstream", connection: httpcore2.AsyncHTTPConnection):
        self.status: int = response.status
        self.headers: Headers = response.headers
        self._response = response
        self._parts = response.aiter_stream()
        self._upstream = upstream
        self._connection = connection

    def __aiter__(self) -> AsyncIterator[bytes]:
        """The body as it comes. Raises one of `Broken` where it is cut short."""
        return self._parts

    async def aclose(self) -> None:
        """Unless all of it was read, close the connection, so that the engine stops."""
        await self._parts.aclose()
        await self._response.aclose()  # the parts know nothing of it where none was asked for
        await self._upstream._give_back(self._connection)


class Upstream:
    """One pool's server. Goes to its base_url and nowhere else: no proxy from the environment, no redirect.

    Connections are kept here and not in the library's pool, which looks through all of them for every request. Raises
    SettingsError when the base_url cannot be used.
    """

    def __init__(self, pool: Pool) -> None:
        try:
            base = httpx2.URL(pool.base_url.rstrip("/"))
        except httpx2.InvalidURL as error:
            raise SettingsError(f"pool {pool.name}: base_url {pool.base_url!r} is not a URL: {error}") from error
        port = base.port or (443 if base.scheme == "https" else 80)
        self._origin = httpcore2.Origin(base.raw_scheme, base.raw_host, port)
        self._host = (b"host", base.netloc)
        self._base = base.raw_path.rstrip(b"/")
        self._root = self._base.removesuffix(b"/v1")
        self._silence_seconds = pool.request_timeout_seconds
        self._timeouts = {"connect": CONNECT_SECONDS, "write": WRITE_SECONDS, "read": self._silence_seconds}
        # Loading the certificates costs 90 ms: not where nothing is encrypted.
        self._ssl_context = httpx2.create_ssl_context() if base.scheme == "https" else None
        # The one idle for longest is taken first: behind a balancer, each replica then has its share of the requests.
        self._idle: deque[httpcore2.AsyncHTTPConnection] = deque()

    async def aclose(self) -> None:
        """Close the idle connections; the others are closed with their answers."""
        while self._idle:
            await self._idle.pop().aclose()

    async def send(
        self, method: str, path: bytes, headers: Headers, content: bytes | AsyncIterator[bytes] | None
    ) -> Answer:
        """Ask for `path`, which is what a caller of an OpenAI-compatible server asks for, with its query.

        Raises Denied (502, 504) when there is no answer. Cancelled, it closes the connection, so that the engine stops.
        """
        try:
            connection = await self._idle_connection()
            if connection is not None:
                try:
                    return await self._ask(connection, method, path, headers, content)
                except (httpcore2.NetworkError, httpcore2.RemoteProtocolError):
                    # The server closed it at the moment when we used it, and has not seen the request.
                    if not isinstance(content, bytes):
                        raise
            connection = httpcore2.AsyncHTTPConnection(self._origin, self._ssl_context, KEEP_ALIVE_SECONDS)
            return await self._ask(connection, method, path, headers, content)
        except httpcore2.ReadTimeout:
            why = f"the model server has said nothing for {self._silence_seconds:g} s"
            raise Denied(504, "server_error", "upstream_timeout", why) from None
        except (httpcore2.ConnectError, httpcore2.ConnectTimeout):
            why = "the model server cannot be reached: try again when it is up"
            raise Denied(502, "server_error", "upstream_unreachable", why) from None
        except Broken as error:
            why = f"the model server ended the connection without an answer ({type(error).__name__})"
            raise Denied(502, "server_error", "upstream_failed", why) from None

    async def _ask(
        self,
        connection: httpcore2.AsyncHTTPConnection,
        method: str,
        path: bytes,
        headers: Headers,
        content: bytes | AsyncIterator[bytes] | None,
    ) -> Answer:
        request = httpcore2.Request(
            method,
            httpcore2.URL(
                scheme=self._origin.scheme, host=self._origin.host, port=self._origin.port, target=self._target(path)
            ),
            headers=[self._host, *headers],
            content=content,
            extensions={"timeout": self._timeouts},
        )
        answer = Answer(await connection.handle_async_request(request), self, connection)
        if why := _not_for_callers(answer):
            await answer.aclose()
            raise Denied(502, "server_error", "upstream_failed", why)
        return answer

    def _target(self, path: bytes) -> bytes:
        """Below /v1 it is the pool's base_url that is meant, elsewhere the server itself."""
        below = path.removeprefix(b"/v1/")
        return self._root + path if below == path else self._base + b"/" + below

    async def _idle_connection(self) -> httpcore2.AsyncHTTPConnection | None:
        while self._idle:
            connection = self._idle.popleft()
            if not connection.has_expired():
                return connection
            await connection.aclose()
        return None

    async def _give_back(self, connection: httpcore2.AsyncHTTPConnection) -> None:
        if connection.is_idle():
            self._idle.append(connection)
        while self._idle and self._idle[0].has_expired():
            await self._idle.popleft().aclose()


def _not_for_callers(answer: Answer) -> str | None:
    """Why an answer must not be passed on: callers follow redirects, and would take the chat to another host."""
    if not 200 <= answer.status < 600:
        return f"the model server answers with a status that means nothing here ({answer.status})"
    if 300 <= answer.status < 400:
        where = [value.strip() for name, value in answer.headers if name.lower() == b"location"]
        if any(not re.match(rb"/(?![/\\])", value) for value in where):
            return "the model server redirects to another address: set the pool's base_url to where the engine is"
    return None


def end_to_end(headers: Headers, drop: frozenset[bytes] = frozenset()) -> list[tuple[bytes, bytes]]:
    """The headers that go on, without those for this hop alone and without `drop`; names in lower case."""
    lowered = [(name.lower(), value) for name, value in headers]
    dropped = HOP_BY_HOP | drop
    for name, value in lowered:
        if name == b"connection":
            dropped |= {token.strip().lower() for token in value.split(b",")}
    return [(name, value) for name, value in lowered if name not in dropped]


def towards_model(headers: Headers, drop: frozenset[bytes] = frozenset()) -> list[tuple[bytes, bytes]]:
    """A caller's headers as the model server is to have them, but for its host and the body's length."""
    return end_to_end(headers, _SET_ANEW | drop)
