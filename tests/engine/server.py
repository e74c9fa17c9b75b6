"""The engine's HTTP server: the OpenAI-compatible paths, /metrics and /health, and the /control paths for tests."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from scheduler.simulation.engine.profile import EngineProfile
from tests.engine import wire
from tests.engine.control import Control
from tests.engine.http import Exchange, HttpConnection
from tests.engine.refusals import Refusal, no_such_path
from tests.engine.service import ModelService, ServiceSettings


class EngineServer:
    """An async context manager that listens on loopback while it is open."""

    def __init__(
        self,
        profile: EngineProfile,
        settings: ServiceSettings | None = None,
        *,
        port: int = 0,
        log_path: Path | None = None,
    ) -> None:
        self.service = ModelService(profile, settings, log_path)
        self._port = port
        self._connections: set[HttpConnection] = set()
        self._server: asyncio.Server | None = None
        control = Control(self.service)
        self._routes: dict[tuple[str, str], Callable[[Exchange], None]] = {
            ("POST", "/v1/chat/completions"): lambda exchange: self.service.serve(exchange, "chat"),
            ("POST", "/v1/completions"): lambda exchange: self.service.serve(exchange, "completion"),
            ("GET", "/v1/models"): self._models,
            ("GET", "/health"): lambda exchange: exchange.respond(200, b""),
            ("GET", "/metrics"): self._metrics,
            **control.routes(),
        }

    @property
    def address(self) -> str:
        """`http://127.0.0.1:<port>` of the open server."""
        return f"http://127.0.0.1:{self._port}"

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: HttpConnection(self._handle, self._connections), "127.0.0.1", self._port, backlog=4096
        )
        self._port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        for connection in list(self._connections):
            connection.abort()
        # One turn of the loop for the transports to tell their connections.
        await asyncio.sleep(0)
        self.service.close()

    def _handle(self, exchange: Exchange) -> None:
        request = exchange.request
        route = self._routes.get((request.method, request.path))
        try:
            if route is None:
                raise no_such_path(request.path)
            route(exchange)
        except Refusal as refusal:
            exchange.respond(refusal.status, refusal.encoded(), headers=refusal.headers)

    def _models(self, exchange: Exchange) -> None:
        self.service.authorize(exchange)
        context_tokens = self.service.driver.core.profile.context_tokens
        exchange.respond(200, wire.models(self.service.settings.model, context_tokens))

    def _metrics(self, exchange: Exchange) -> None:
        if self.service.settings.metrics_gone:
            raise no_such_path("/metrics")
        page = self.service.metrics.render(self.service.driver.core)
        exchange.respond(200, page, "text/plain; version=0.0.4; charset=utf-8")
