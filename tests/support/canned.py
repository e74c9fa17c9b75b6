"""A raw server for what no well-meaning engine does: it answers every request with the same bytes."""

import asyncio
import ssl
from pathlib import Path
from types import TracebackType
from typing import Self

CERTIFICATE = Path(__file__).with_name("self_signed.pem")
OF_ANOTHER_HOST = Path(__file__).with_name("of_another_host.pem")  # which signed it itself, too
STREAM_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def framed(data: bytes) -> bytes:
    """One chunk of a chunked body; of an empty one, the last."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def whole(status: int, body: bytes = b"", content_type: str = "application/json", *headers: str) -> bytes:
    """A whole answer with its length."""
    lines = [f"HTTP/1.1 {status} Status", f"content-type: {content_type}", f"content-length: {len(body)}", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


class CannedServer:
    """An async context manager. After `answer` it repeats `for_ever`, closes the connection, or reads on.

    With `encrypted` it speaks TLS, with a certificate for localhost that it signed itself, or another.
    """

    def __init__(self, answer: bytes, *, for_ever: bytes = b"", close: bool = False, encrypted: bool = False,
                 certificate: Path = CERTIFICATE) -> None:  # fmt: skip
        self._answer = answer
        self._for_ever = for_ever
        self._close = close
        self._ssl: ssl.SSLContext | None = None
        if encrypted:
            self._ssl = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._ssl.load_cert_chain(certificate)
        self._server: asyncio.Server | None = None
        self._open: dict[asyncio.StreamWriter, asyncio.Task[None]] = {}
        self.connections = 0
        self.requests: list[bytes] = []

    @property
    def port(self) -> int:
        assert self._server is not None
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    @property
    def base_url(self) -> str:
        return f"{'https' if self._ssl else 'http'}://127.0.0.1:{self.port}/v1"

    @property
    def open_connections(self) -> int:
        return len(self._open)

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._ssl)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        serving = list(self._open.values())
        for writer in self._open:
            writer.close()
        await asyncio.gather(*serving)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task: asyncio.Task[None] | None = asyncio.current_task()
        assert task is not None
        self._open[writer] = task
        self.connections += 1
        try:
            while await self._one(reader, writer):
                pass
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            del self._open[writer]
            writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = await reader.readuntil(b"\r\n\r\n")
        length = next((line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), b":0")
        self.requests.append(head + await reader.readexactly(int(length.partition(b":")[2])))
        writer.write(self._answer)
        await writer.drain()
        while self._for_ever and not writer.is_closing():
            writer.write(self._for_ever)
            await writer.drain()
            await asyncio.sleep(0)
        return not self._close
