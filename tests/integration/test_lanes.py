"""The connections to a model server: when a call has ended, what may be reused, and who waits for whom."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx2
import pytest

from jobs.outcomes import Symptom
from tests.support.calls import ask, attempt_at, client_of
from tests.support.canned import STREAM_HEAD, CannedServer, framed
from tests.support.wait import wait_until_async
from workers.client import AFTER_END_SECONDS
from workers.lanes import Lanes

CALLS = 10
CONNECT_SECONDS = 5.0
REQUEST = b"POST / HTTP/1.1\r\nHost: here\r\nContent-Length: 2\r\n\r\n{}"
PIECE = b"x" * 65_536


def said(label: str) -> bytes:
    event = b'data: {"choices": [{"delta": {"content": "{\\"label\\": \\"%b\\"}"}, "finish_reason": "stop"}]}\n\n'
    return STREAM_HEAD + framed(event % label.encode()) + framed(b"data: [DONE]\n\n") + framed(b"")


@asynccontextmanager
async def lanes_to(server: CannedServer) -> AsyncIterator[Lanes]:
    lanes = Lanes(httpx2.URL(server.base_url), 1, CONNECT_SECONDS)
    try:
        yield lanes
    finally:
        lanes.close()


def test_a_call_ends_with_its_answer_on_a_connection_that_stays_open() -> None:
    async def scene() -> float:
        async with CannedServer(said("billing")) as server, client_of(server.base_url, at_once=1) as client:
            began = time.monotonic()
            for _ in range(CALLS):
                assert (await ask(client)).label == "billing"
            assert server.connections == 1
            return time.monotonic() - began

    assert asyncio.run(scene()) < CALLS * AFTER_END_SECONDS / 2


def test_what_comes_behind_an_answer_is_nobodys() -> None:
    async def scene() -> None:
        async with (
            CannedServer(said("billing") + said("shipping")) as server,
            client_of(server.base_url, at_once=1) as client,
        ):
            for _ in range(CALLS):
                assert (await ask(client)).label == "billing"
            assert server.connections == CALLS

    asyncio.run(scene())


def test_what_comes_on_a_resting_connection_is_nobodys() -> None:
    served: list[asyncio.StreamWriter] = []
    ended: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        served.append(writer)
        with contextlib.suppress(ConnectionError):
            while await reader.read(65_536):
                writer.write(said("billing"))
        writer.close()
        ended.append(writer)

    async def scene() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        async with server, client_of(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", at_once=1) as client:
            assert (await ask(client)).label == "billing"
            served[0].write(said("shipping"))
            await wait_until_async(lambda: ended, "the client to close the connection")
            assert (await ask(client)).label == "billing"
        assert len(served) == 2
        await wait_until_async(lambda: len(ended) == 2, "the other one to be closed")

    asyncio.run(scene())


def test_an_answer_that_is_left_takes_its_connection_with_it() -> None:
    async def scene() -> None:
        async with CannedServer(STREAM_HEAD + framed(b"x")) as server, lanes_to(server) as lanes:
            for number in range(3):
                async with await lanes.send(REQUEST) as answer:
                    assert await anext(answer.content) == b"x"
                assert server.connections == number + 1
            await wait_until_async(lambda: server.open_connections == 0, "the connections to be closed")

    asyncio.run(scene())


def test_one_call_more_than_there_are_lanes_waits() -> None:
    async def scene() -> None:
        async with CannedServer(said("billing")) as server, lanes_to(server) as lanes:
            async with await lanes.send(REQUEST):
                waiting = asyncio.ensure_future(lanes.send(REQUEST))
                await asyncio.sleep(0.05)
                assert not waiting.done()
            async with await waiting as answer:
                assert answer.status == 200

    asyncio.run(scene())


def test_a_server_does_not_get_far_ahead_of_its_reader() -> None:
    sent = 0
    is_over = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await reader.read(65_536)
        writer.write(STREAM_HEAD)
        with contextlib.suppress(ConnectionError):  # the reader has gone
            while True:
                writer.write(framed(PIECE))
                await writer.drain()
                sent += len(PIECE)
        writer.close()
        is_over.set()

    async def scene() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        url = httpx2.URL(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/")
        lanes = Lanes(url, 1, CONNECT_SECONDS)
        async with await lanes.send(REQUEST) as answer:
            before = -1

            async def has_stopped() -> bool:
                nonlocal before
                last, before = before, sent
                await asyncio.sleep(0.2)
                return sent == last > 0

            async with asyncio.timeout(30):
                while not await has_stopped():
                    pass
            stood_at = sent
            received = 0
            async for piece in answer.content:
                received += len(piece)
                if received > stood_at + 10 * len(PIECE):
                    break
            assert sent > stood_at  # it goes on as soon as it is read
        server.close()
        await is_over.wait()

    asyncio.run(scene())


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_where_nobody_listens_is_told_whatever_the_number_of_addresses(host: str) -> None:
    async def a_free_port() -> int:
        async with CannedServer(b"") as server:
            return server.port

    attempt = attempt_at(f"http://{host}:{asyncio.run(a_free_port())}/v1")
    assert attempt.symptom is Symptom.UNREACHABLE
    assert "connection refused" in attempt.detail
