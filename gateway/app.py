"""The gateway as an ASGI application: which request goes where, and what the gateway answers itself."""

import logging
import time
from collections.abc import Callable
from typing import Self

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from gateway.caller import BODY_SECONDS, Gone, Keys, WhileThere, read_body
from gateway.chat import Chat, ChatPool
from gateway.door import chat_pools
from gateway.error import Denied, bad_request, server_error
from gateway.exchange import Exchange
from gateway.metrics import Metrics
from gateway.outcome import Outcome
from gateway.prompt import Prompt
from gateway.upstream import Headers, end_to_end, towards_model
from tickets_batch.lane import Broken
from tickets_batch.settings import Settings

log = logging.getLogger(__name__)

# Some servers answer the same below /v1 and without it.
ADMITTED = {
    "/v1/chat/completions": b"/v1/chat/completions",
    "/v1/completions": b"/v1/completions",
    "/chat/completions": b"/v1/chat/completions",
    "/completions": b"/v1/completions",
}


class GatewayApp:
    """Admits chat, passes everything else through, answers /healthz and /metrics itself.

    An async context manager: doors and connections are open while it is entered. Raises SettingsError when no pool
    takes chat, or when a secret cannot be read.
    """

    def __init__(self, settings: Settings, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._bounds = settings.gateway
        self._monotonic = monotonic
        self._keys = Keys(settings.gateway.keys) if settings.gateway.keys else None
        self.metrics = Metrics()
        self._chat = Chat(self.metrics, monotonic)
        self._pools = [ChatPool.connect(settings, pool) for pool in chat_pools(settings)]
        self._by_model = {pool.pool.model: pool for pool in reversed(self._pools)}
        for pool in self._pools:
            self.metrics.watch(pool.pool.name, pool.door)

    async def __aenter__(self) -> Self:
        for pool in self._pools:
            pool.door.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        for pool in self._pools:
            await pool.aclose()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one HTTP request."""
        exchange = Exchange(scope, receive, send, self._monotonic())
        answer: Response | None
        try:
            answer = await self._serve(exchange)
        except Gone:
            return
        except Denied as denied:
            answer = _told(denied)
        except Exception:
            log.exception("a request for %s failed", exchange.path)
            answer = None if exchange.has_started else _told(server_error())
        if answer is not None:
            await answer(scope, receive, send)

    async def _serve(self, exchange: Exchange) -> Response | None:
        """Answer, or return what the answer is to be. Raises Denied, Gone."""
        if exchange.path == "/healthz":
            return self._health()
        if exchange.path == "/metrics":
            return Response(self.metrics.page(), media_type=CONTENT_TYPE_LATEST)
        if self._keys is not None:
            self._keys.check(exchange.header(b"authorization"))
        if exchange.header(b"content-length") is not None and exchange.header(b"transfer-encoding") is not None:
            raise bad_request("a body has either content-length or transfer-encoding")  # which counts, servers differ
        path = exchange.path.rstrip("/")
        if not exchange.path.startswith("/") or "//" in path or not {".", ".."}.isdisjoint(path.split("/")):
            raise bad_request("the path is not in its plain form")  # another server might read it as a path of ours
        if exchange.method == "TRACE":  # would show the caller what we add, the key of the pool
            raise Denied(405, "invalid_request_error", "method_not_allowed", "TRACE is not passed on")
        if path not in ADMITTED and _loosely(path) in ADMITTED:
            raise bad_request("the path is not in its plain form")
        if path in ADMITTED and exchange.method == "POST":
            await self._admitted(exchange, ADMITTED[path])
        else:
            await self._passed(exchange)
        return None

    async def _admitted(self, exchange: Exchange, path: bytes) -> None:
        outcome = Outcome.UPSTREAM_FAILED
        try:
            most_bytes = self._bounds.max_body_bytes
            body = await read_body(exchange.receive, exchange.header(b"content-length"), most_bytes)
            prompt = Prompt.read(body, self._bounds.max_output_tokens)
            pool = self._by_model.get(prompt.model or "", self._pools[0])
            outcome = await self._chat.serve(exchange, path, prompt, pool, self._authorized(exchange.headers, pool))
        except Denied as denied:
            outcome = denied.outcome
            raise
        except Gone:
            outcome = Outcome.CALLER_GONE
            raise
        finally:
            self.metrics.count(outcome)

    async def _passed(self, exchange: Exchange) -> None:
        """Pass a request through as it is, both ways as it comes."""
        self.metrics.passed.inc()
        pool = self._pools[0]
        headers = towards_model(self._authorized(exchange.headers, pool))
        length = exchange.header(b"content-length")
        if length is not None:
            headers.append((b"content-length", length))
        elif exchange.header(b"transfer-encoding") is not None:
            headers.append((b"transfer-encoding", b"chunked"))
        has_body = exchange.header(b"transfer-encoding") is not None or length not in (None, b"0")
        async with WhileThere(exchange.receive) as caller:
            if not has_body:
                caller.watch()
            content = caller.body(BODY_SECONDS) if has_body else None
            answer = await pool.upstream.send(exchange.method, exchange.target, headers, content)
            try:
                await exchange.start(answer.status, end_to_end(answer.headers))
                async for chunk in answer:
                    await exchange.write(chunk)
            except Broken:
                return  # cut short there, and so here
            finally:
                answer.close()
        await exchange.end()

    def _authorized(self, headers: Headers, pool: ChatPool) -> Headers:
        """The caller's own authorization, or the pool's where the gateway has checked the caller."""
        if self._keys is None:
            return headers
        others = [(name, value) for name, value in headers if name != b"authorization"]
        return others if pool.authorization is None else [*others, (b"authorization", pool.authorization)]

    def _health(self) -> JSONResponse:
        """Chat is served as long as this answers; whether it is admitted or let in unasked is said for each pool."""
        pools = {
            pool.pool.name: {
                "redis": "away" if pool.door.is_away else "ok",
                "in_flight": pool.door.in_flight,
                "admitted_open": pool.door.admitted_open,
            }
            for pool in self._pools
        }
        return JSONResponse({"status": "ok", "pools": pools})


def _loosely(path: str) -> str:
    """The path as a careless server might read it."""
    return path.replace("\\", "/").partition(";")[0].rstrip("\0 .").lower()


def _told(denied: Denied) -> JSONResponse:
    return JSONResponse(denied.body, denied.status, headers=denied.headers)
