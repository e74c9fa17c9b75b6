"""One gateway in front of one raw server, for many cases one after the other."""

import asyncio
import contextlib
import re
import threading
from collections.abc import Iterator
from typing import Any

from tests.hostile.sockets import connected
from tests.support.canned import CannedServer
from tests.support.gateways import chat_settings, running


class Switched(CannedServer):
    """A raw server whose answer can be changed."""

    def say(self, answer: bytes, for_ever: bytes = b"", *, close: bool = False) -> None:
        self._answer, self._for_ever, self._close = answer, for_ever, close


class Front:
    """The gateway's address, the server behind it, and one elsewhere that nobody has configured."""

    def __init__(self, address: str, server: Switched, elsewhere: CannedServer) -> None:
        self.address = address
        self.server = server
        self.elsewhere = elsewhere

    def ask(self, request: bytes) -> tuple[bytes, list[bytes]]:
        """The first answer, and what the model was sent meanwhile."""
        before = len(self.server.requests)
        with connected(self.address) as connection:
            answer = b""
            with contextlib.suppress(ConnectionError):  # refused before all of it was read
                connection.sendall(request)
                while not _is_whole(answer) and (part := connection.recv(65536)):
                    answer += part
        return answer, self.server.requests[before:]


@contextlib.contextmanager
def front_of(redis_url: str, answer: bytes, **bounds: Any) -> Iterator[Front]:
    """A gateway on a thread of this process, in front of a server that answers so until it is told otherwise."""
    servers: list[CannedServer] = []
    loop = asyncio.new_event_loop()
    ready, ending = threading.Event(), asyncio.Event()

    async def serve() -> None:
        async with Switched(answer) as server, CannedServer(answer) as elsewhere:
            servers[:] = [server, elsewhere]
            ready.set()
            await ending.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),), daemon=True)
    thread.start()
    assert ready.wait(10)
    server, elsewhere = servers
    assert isinstance(server, Switched)
    with running(chat_settings(redis_url, server.base_url, **bounds)) as address:
        yield Front(address, server, elsewhere)
    loop.call_soon_threadsafe(ending.set)
    thread.join(10)
    loop.close()


def _is_whole(answer: bytes) -> bool:
    head, _, body = answer.partition(b"\r\n\r\n")
    length = re.search(rb"(?i)content-length: (\d+)", head)
    return length is not None and len(body) >= int(length[1])
