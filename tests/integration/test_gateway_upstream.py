"""Model servers that answer late, in pieces, or never: the gateway waits for an answer's head so long and no longer."""

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from gateway.error import Denied
from gateway.upstream import Answer, Upstream
from tests.support.engines import chat_body
from tests.support.gateways import chat_settings, http, running, snapshot
from tests.support.valkey import ValkeyServer
from tests.support.wait import wait_until
from tickets_batch.lane import INFORMATIONAL, PIECES
from tickets_batch.settings import Settings

BODY = json.dumps(chat_body(2)).encode()
HEADERS = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(BODY))]
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
EARLY_HINTS = b"HTTP/1.1 103 Early Hints\r\nlink: </style.css>\r\n\r\n"
WHOLE = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"
SILENCE_SECONDS = 1.0
PAUSE_SECONDS = SILENCE_SECONDS / 5

Behaviour = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def server(behaviour: Behaviour) -> AsyncIterator[str]:
    """A server that reads one request of a connection after another and then behaves so; its base URL."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                await reader.readuntil(b"\r\n\r\n")
                await reader.readexactly(len(BODY))
                await behaviour(reader, writer)
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the gateway has had enough
        finally:
            writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with listening:
        yield f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/v1"


@asynccontextmanager
async def upstream_to(behaviour: Behaviour) -> AsyncIterator[Upstream]:
    async with server(behaviour) as base_url:
        (pool,) = chat_settings("redis://127.0.0.1:1/0", base_url).pool
        upstream = Upstream(pool.model_copy(update={"request_timeout_seconds": SILENCE_SECONDS}))
        try:
            yield upstream
        finally:
            upstream.close()
            await asyncio.sleep(0)  # a connection is closed in the loop's next round


async def ask(upstream: Upstream) -> Answer:
    return await upstream.send("POST", b"/v1/chat/completions", HEADERS, BODY)


async def read(answer: Answer) -> list[bytes]:
    parts = [part async for part in answer]
    answer.close()
    return parts


def denied(behaviour: Behaviour) -> Denied:
    """What a caller is told of a server that behaves so."""

    async def scene() -> Denied:
        async with upstream_to(behaviour) as upstream:
            with pytest.raises(Denied) as caught:
                await asyncio.wait_for(ask(upstream), 20)
            return caught.value

    return asyncio.run(scene())


async def repeat(writer: asyncio.StreamWriter, piece: bytes, pause_seconds: float) -> None:
    while True:
        writer.write(piece)
        await writer.drain()
        await asyncio.sleep(pause_seconds)


async def continue_for_ever(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await repeat(writer, CONTINUE, 0.001)


async def continue_now_and_then(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await repeat(writer, CONTINUE, PAUSE_SECONDS)


async def trickle_a_head(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nx: ")
    await repeat(writer, b"y", PAUSE_SECONDS)


async def say_nothing(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
    await reader.read()


async def answer_after_hints(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(CONTINUE + EARLY_HINTS * (INFORMATIONAL - 1) + WHOLE)


class TestHeads:
    def test_an_answer_may_be_announced(self) -> None:
        async def scene() -> list[bytes]:
            async with upstream_to(answer_after_hints) as upstream:
                return await read(await ask(upstream))

        assert asyncio.run(scene()) == [b"{}"]

    def test_announcements_without_end_are_no_answer(self) -> None:
        error = denied(continue_for_ever)
        assert (error.status, error.code) == (502, "upstream_failed")

    @pytest.mark.parametrize("behaviour", [continue_now_and_then, trickle_a_head, say_nothing])
    def test_what_is_said_meanwhile_does_not_put_the_end_off(self, behaviour: Behaviour) -> None:
        error = denied(behaviour)
        assert (error.status, error.code) == (504, "upstream_timeout")

    def test_the_permit_comes_back(self, valkey: ValkeyServer) -> None:
        async def scene() -> None:
            async with server(continue_now_and_then) as base_url:
                settings = chat_settings(valkey.url, base_url)
                pool = settings.pool[0].model_copy(update={"request_timeout_seconds": SILENCE_SECONDS})
                await asyncio.to_thread(through, settings.model_copy(update={"pool": [pool]}))

        def through(settings: Settings) -> None:
            with running(settings) as door:
                status, _ = http(door, "POST", "/v1/chat/completions", BODY)
                assert status == 504
                wait_until(lambda: snapshot(settings).interactive.slots == 0, "the permit to be given back")

        asyncio.run(scene())


class TestBodies:
    def test_what_came_together_goes_on_together(self) -> None:
        pieces = [b"data: %d\n\n" % number for number in range(2 * PIECES)]
        chunks = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces)

        async def stream(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n")

        async def scene() -> list[bytes]:
            async with upstream_to(stream) as upstream:
                return await read(await ask(upstream))

        parts = asyncio.run(scene())
        assert b"".join(parts) == b"".join(pieces)
        assert len(parts) < 10

    def test_a_connection_is_used_again_only_after_a_whole_answer(self) -> None:
        numbers = itertools.count()
        kept = []

        async def count(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            kept.append((next(numbers), writer.get_extra_info("peername")))
            writer.write(WHOLE)

        async def scene() -> None:
            async with upstream_to(count) as upstream:
                await read(await ask(upstream))
                (await ask(upstream)).close()  # unread
                await read(await ask(upstream))

        asyncio.run(scene())
        assert [number for number, _ in kept] == [0, 1, 2]
        assert kept[0][1] == kept[1][1] != kept[2][1]

    def test_a_server_that_closes_a_resting_connection_is_asked_again(self) -> None:
        served = []

        async def answer_once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            served.append(1)
            if len(served) == 2:
                writer.transport.abort()  # the request has come in on the connection that rested
                return
            writer.write(WHOLE)

        async def scene() -> list[bytes]:
            async with upstream_to(answer_once) as upstream:
                await read(await ask(upstream))
                return await read(await ask(upstream))

        assert asyncio.run(scene()) == [b"{}"]
        assert len(served) == 3
