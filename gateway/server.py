"""The gateway as a server: where it listens, and how it stops."""

import asyncio
import contextlib
import logging
import socket
import threading
from collections.abc import Callable, Iterator

import uvicorn

from gateway.app import GatewayApp
from gateway.connection import CallerConnection
from tickets_batch.errors import UserError
from tickets_batch.local.open_files import make_room_for, of_gateway
from tickets_batch.settings import Settings

STOP_SECONDS = 5  # for the answers under way when the gateway is told to stop
KEEP_ALIVE_SECONDS = 75  # idle callers; longer than they or a balancer in front keep a connection themselves
HEAD_BYTES = 64 * 1024
BACKLOG = 1024


class GatewayServer(uvicorn.Server):
    """Leaves the signals to the command."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Nothing: the command hears the signals and says `stop`."""
        yield


def serve(settings: Settings, stop: threading.Event, said: Callable[[str], None]) -> None:
    """Serve until `stop` is set; `said` is told the address. Raises UserError when it cannot listen, SettingsError."""
    app = GatewayApp(settings)
    connections = settings.gateway.max_connections
    make_room_for(of_gateway(connections), f"{connections} callers")
    with listening(settings.gateway.listen) as server_socket:
        asyncio.run(_serve(app, settings, server_socket, stop, said))


@contextlib.contextmanager
def listening(listen: str) -> Iterator[socket.socket]:
    """A socket on HOST:PORT. Raises UserError."""
    host, _, port = listen.rpartition(":")
    host = host.strip("[]")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With its protocol named: only on connections of such a socket does asyncio send small pieces at once. On others a
    # first token waits 40 ms for the caller's acknowledgement of what went before.
    with socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP) as server_socket:
        server_socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            server_socket.bind((host, int(port)))
            server_socket.listen(BACKLOG)
        except (OSError, OverflowError) as error:
            why = getattr(error, "strerror", None) or str(error)
            raise UserError(
                f"cannot listen on {listen}: {why}; change gateway.listen, or stop what is there"
            ) from error
        yield server_socket


async def _serve(
    app: GatewayApp,
    settings: Settings,
    server_socket: socket.socket,
    stop: threading.Event,
    said: Callable[[str], None],
) -> None:
    server = GatewayServer(
        uvicorn.Config(
            app,
            http=CallerConnection,
            lifespan="off",
            ws="none",
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            proxy_headers=False,
            limit_concurrency=settings.gateway.max_connections + 1,  # refuses from that one on
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=STOP_SECONDS,
            h11_max_incomplete_event_size=HEAD_BYTES,
        )
    )

    # It writes a line or more for each answer that is cut short; what matters of those the application says itself.
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)

    async def stop_when_told() -> None:
        await asyncio.to_thread(stop.wait)
        server.should_exit = True

    async with app:
        watch = asyncio.create_task(stop_when_told())
        host, port = server_socket.getsockname()[:2]
        said(f"the gateway listens on http://{f'[{host}]' if ':' in host else host}:{port}/v1")
        try:
            await server.serve([server_socket])
        finally:
            stop.set()  # the thread that waits for it must end too
            await watch
