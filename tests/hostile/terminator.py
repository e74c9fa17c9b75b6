"""TLS in front of a server that speaks none, with a certificate of the tests' own."""

import asyncio
import contextlib
import ssl
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

from tests.support.canned import CERTIFICATE

SSL_REQUEST = bytes.fromhex("0000000804d2162f")  # with these bytes a client of PostgreSQL asks for TLS

Connect = Callable[[], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]


def context(certificate: Path) -> ssl.SSLContext:
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.load_cert_chain(certificate)
    return made


@contextlib.contextmanager
def terminator(
    connect: Connect, *, asks_first: bool = False, certificate: Path = CERTIFICATE, heard: bytearray | None = None
) -> Iterator[int]:
    """The port of a server on 127.0.0.1 that takes TLS and passes what is in it on; `asks_first` as PostgreSQL does.

    What the client says within TLS is also put into `heard`.
    """
    loop = asyncio.new_event_loop()
    ending = asyncio.Event()
    ready = threading.Event()
    ports: list[int] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        errors = contextlib.suppress(ssl.SSLError, OSError, asyncio.IncompleteReadError)
        with errors, _closed(writer):
            if asks_first:
                assert await reader.readexactly(8) == SSL_REQUEST
                writer.write(b"S")
                await writer.drain()
                await writer.start_tls(context(certificate))
            their_reader, their_writer = await connect()
            with _closed(their_writer):
                await asyncio.gather(_pass_on(reader, their_writer, heard), _pass_on(their_reader, writer))

    async def run() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=None if asks_first else context(certificate))
        async with server:
            ports.append(server.sockets[0].getsockname()[1])
            ready.set()
            await ending.wait()

    def in_thread() -> None:
        loop.set_exception_handler(lambda *_: None)  # handshakes that fail are what some tests are about
        loop.run_until_complete(run())
        loop.run_until_complete(_cancel_the_rest())
        loop.close()

    thread = threading.Thread(target=in_thread, daemon=True)
    thread.start()
    assert ready.wait(10)
    yield ports[0]
    loop.call_soon_threadsafe(ending.set)
    thread.join(10)


@contextlib.contextmanager
def _closed(writer: asyncio.StreamWriter) -> Iterator[None]:
    """At the end without a goodbye: who was at the other end may be gone."""
    try:
        yield
    finally:
        writer.transport.abort()


async def _cancel_the_rest() -> None:
    """Every other task, and then the loop is given the turns in which it closes their connections."""
    rest = asyncio.all_tasks() - {asyncio.current_task()}
    for task in rest:
        task.cancel()
    await asyncio.gather(*rest, return_exceptions=True)
    for _ in range(3):
        await asyncio.sleep(0)


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, heard: bytearray | None = None) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65536):
            if heard is not None:
                heard += data
            writer.write(data)
            await writer.drain()
    writer.close()
