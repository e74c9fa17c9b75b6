"""The model server behind the door: requests passed on to it, answers passed back, both as they come."""

import re
from collections import deque
from collections.abc import Sequence
from typing import Self

import h11
import httpx2

from gateway.error import Denied
from tickets_batch.errors import SettingsError
from tickets_batch.lane import Broken, Content, Lane, Silent, Unreachable
from tickets_batch.settings import Pool

Headers = Sequence[tuple[bytes, bytes]]

CONNECT_SECONDS = 5.0

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

    def __init__(self, response: h11.Response, upstream: "Upstream", lane: Lane) -> None:
        self.status: int = response.status_code
        self.headers: Headers = list(response.headers)
        self._upstream = upstream
        self._lane = lane

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        """All that has come of the body since the last time. Raises Broken where it is cut short."""
        part = await self._lane.read(self._upstream.silence_seconds)
        if not part:
            raise StopAsyncIteration
        return part

    def close(self) -> None:
        """Unless all of it was read, close the connection, so that the engine stops."""
        self._upstream.give_back(self._lane)


class Upstream:
    """One pool's server. Goes to its base_url and nowhere else: no proxy from the environment, no redirect.

    After `silence_seconds` without a word of it an answer is given up. Raises SettingsError when the base_url cannot be
    used.
    """

    def __init__(self, pool: Pool) -> None:
        try:
            base = httpx2.URL(pool.base_url.rstrip("/"))
        except httpx2.InvalidURL as error:
            raise SettingsError(f"pool {pool.name}: base_url {pool.base_url!r} is not a URL: {error}") from error
        self._address = base.raw_host.decode(), base.port or (443 if base.scheme == "https" else 80)
        self._host = (b"host", base.netloc)
        self._base = base.raw_path.rstrip(b"/")
        self._root = self._base.removesuffix(b"/v1")
        self.silence_seconds = pool.request_timeout_seconds
        # Loading the certificates costs 90 ms: not where nothing is encrypted.
        self._ssl_context = httpx2.create_ssl_context() if base.scheme == "https" else None
        # The one idle for longest is taken first: behind a balancer, each replica then has its share of the requests.
        self._idle: deque[Lane] = deque()

    def close(self) -> None:
        """Close the idle connections; the others are closed with their answers."""
        while self._idle:
            self._idle.pop().abort()

    async def send(self, method: str, path: bytes, headers: Headers, content: Content) -> Answer:
        """Ask for `path`, which is what a caller of an OpenAI-compatible server asks for, with its query.

        Raises Denied (502, 504) when there is no answer. Cancelled, it closes the connection, so that the engine stops.
        """
        try:
            return await self._send(method, path, headers, content)
        except Silent:
            why = f"the model server has said nothing for {self.silence_seconds:g} s"
            raise Denied(504, "server_error", "upstream_timeout", why) from None
        except Unreachable:
            why = "the model server cannot be reached: try again when it is up"
            raise Denied(502, "server_error", "upstream_unreachable", why) from None
        except Broken:
            why = "the model server ended the connection without an answer that can be read"
            raise Denied(502, "server_error", "upstream_failed", why) from None

    def give_back(self, lane: Lane) -> None:
        """The lane's answer is of no more use."""
        if lane.rest():
            self._idle.append(lane)
        else:
            lane.abort()
        while self._idle and not self._idle[0].is_fresh:
            self._idle.popleft().abort()

    async def _send(self, method: str, path: bytes, headers: Headers, content: Content) -> Answer:
        try:
            request = h11.Request(method=method, target=self._target(path), headers=[self._host, *headers])
        except h11.LocalProtocolError as error:
            raise Broken(str(error)) from error
        lane = self._idle_one()
        if lane is not None:
            try:
                return await self._ask(lane, request, content)
            except Broken as error:
                # The server closed it at the moment when we used it, and has not seen the request.
                if lane.has_heard or isinstance(error, Silent) or not isinstance(content, bytes | None):
                    raise
        return await self._ask(await Lane.to(*self._address, self._ssl_context, CONNECT_SECONDS), request, content)

    async def _ask(self, lane: Lane, request: h11.Request, content: Content) -> Answer:
        try:
            answer = Answer(await lane.ask(request, content, self.silence_seconds), self, lane)
        except BaseException:
            lane.abort()
            raise
        if why := _not_for_callers(answer):
            lane.abort()
            raise Denied(502, "server_error", "upstream_failed", why)
        return answer

    def _idle_one(self) -> Lane | None:
        while self._idle:
            lane = self._idle.popleft()
            if lane.is_fresh:
                return lane
            lane.abort()
        return None

    def _target(self, path: bytes) -> bytes:
        """Below /v1 it is the pool's base_url that is meant, elsewhere the server itself."""
        below = path.removeprefix(b"/v1/")
        return self._root + path if below == path else self._base + b"/" + below


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
