"""Streamed chat requests to an address, as fast as it answers or so many a second, by a client that costs little."""

import asyncio
import json
import statistics
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx2

from tests.support.engines import chat_body

BODY = json.dumps(chat_body(10, messages=[{"role": "user", "content": "Tell me a story. " * 10}], stream=True)).encode()


@asynccontextmanager
async def client() -> AsyncIterator[httpx2.AsyncHTTPTransport]:
    transport = httpx2.AsyncHTTPTransport(verify=False, limits=httpx2.Limits(keepalive_expiry=3.0))
    yield transport
    await transport.aclose()


async def ask(transport: httpx2.AsyncHTTPTransport, address: str) -> float:
    """One streamed answer; the seconds to its first text."""
    headers = {"content-type": "application/json"}
    request = httpx2.Request("POST", f"{address}/v1/chat/completions", content=BODY, headers=headers)
    begun = time.perf_counter()
    first = None
    response = await transport.handle_async_request(request)
    assert response.status_code == 200
    assert isinstance(response.stream, httpx2.AsyncByteStream)
    async for chunk in response.stream:
        if first is None and b'"content":"t' in chunk:
            first = time.perf_counter() - begun
    await response.aclose()
    assert first is not None
    return first


async def open_loop(addresses: dict[str, str], rate: float, seconds: float) -> dict[str, list[float]]:
    """Ask each address `rate` times a second, in turns, whatever has been answered meanwhile; the seconds to a text."""
    waits: dict[str, list[float]] = {name: [] for name in addresses}
    async with client() as transport, asyncio.TaskGroup() as group:

        async def call(name: str) -> None:
            waits[name].append(await ask(transport, addresses[name]))

        begun = time.perf_counter()
        names = list(addresses)
        for number in range(int(seconds * rate) * len(names)):
            due = begun + number / (rate * len(names))
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            group.create_task(call(names[number % len(names)]))
    return {name: found[len(found) // 10 :] for name, found in waits.items()}


async def closed_loop(address: str, calls: int, at_once: int) -> float:
    """Requests/s with `at_once` on their way."""
    left = iter(range(calls))
    async with client() as transport:

        async def work() -> None:
            for _ in left:
                await ask(transport, address)

        begun = time.perf_counter()
        await asyncio.gather(*(work() for _ in range(at_once)))
        return calls / (time.perf_counter() - begun)


def percentile(values: list[float], percent: int) -> float:
    return statistics.quantiles(values, n=100)[percent - 1]
