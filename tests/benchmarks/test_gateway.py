"""What the gateway costs a chat request: TTFT added at 20 requests/s, and requests a core carries."""

import asyncio
import json
import statistics
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import psutil  # type: ignore[import-untyped]
import pytest

from scheduler.simulation.engine.profile import EngineProfile
from tests.engine.process import EngineProcess
from tests.support.engines import chat_body
from tests.support.gateways import chat_settings, commanded
from tests.support.valkey import ValkeyServer

TTFT_TARGET_SECONDS = 0.8
RATE = 20.0
SECONDS = 25.0
AT_ONCE = 16
CALLS = 1200
ROUNDS = 3
ENGINE = EngineProfile(slots=256, kv_capacity_tokens=1 << 24)
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


async def open_loop(addresses: dict[str, str]) -> dict[str, list[float]]:
    """Ask each address RATE times a second, in turns, whatever has been answered meanwhile."""
    waits: dict[str, list[float]] = {name: [] for name in addresses}
    async with client() as transport, asyncio.TaskGroup() as group:

        async def call(name: str) -> None:
            waits[name].append(await ask(transport, addresses[name]))

        begun = time.perf_counter()
        names = list(addresses)
        for number in range(int(SECONDS * RATE) * len(names)):
            due = begun + number / (RATE * len(names))
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            group.create_task(call(names[number % len(names)]))
    return {name: found[len(found) // 10 :] for name, found in waits.items()}


async def closed_loop(address: str) -> float:
    """Requests/s with AT_ONCE on their way."""
    left = iter(range(CALLS))
    async with client() as transport:

        async def work() -> None:
            for _ in left:
                await ask(transport, address)

        begun = time.perf_counter()
        await asyncio.gather(*(work() for _ in range(AT_ONCE)))
        return CALLS / (time.perf_counter() - begun)


def percentile(values: list[float], percent: int) -> float:
    return statistics.quantiles(values, n=100)[percent - 1]


@pytest.mark.benchmark
def test_ttft_that_the_gateway_adds(valkey: ValkeyServer, tmp_path: Path) -> None:
    with EngineProcess(ENGINE) as engine:
        settings = chat_settings(valkey.url, engine.base_url, slots=256, tokens=1_000_000)
        with commanded(settings, tmp_path) as (_, gateway):
            waits = asyncio.run(open_loop({"direct": engine.address, "gateway": gateway}))
    print(f"\n{RATE:g} requests/s each, {len(waits['direct'])} counted:")
    for name, found in waits.items():
        print(f"  {name:8} TTFT p50 {percentile(found, 50) * 1e3:6.1f} ms   p99 {percentile(found, 99) * 1e3:6.1f} ms")
    added = {p: percentile(waits["gateway"], p) - percentile(waits["direct"], p) for p in (50, 99)}
    print(f"  added    TTFT p50 {added[50] * 1e3:6.1f} ms   p99 {added[99] * 1e3:6.1f} ms")
    assert added[50] < 0.008
    assert added[99] < 0.05 * TTFT_TARGET_SECONDS


@pytest.mark.benchmark
def test_requests_that_one_core_carries(valkey: ValkeyServer, tmp_path: Path) -> None:
    with EngineProcess(EngineProfile.instant()) as engine:
        settings = chat_settings(valkey.url, engine.base_url, slots=256, tokens=1_000_000)
        with commanded(settings, tmp_path) as (command, gateway):
            process = psutil.Process(command.pid)
            rates: dict[str, list[float]] = {"direct": [], "gateway": []}
            cpu = []
            for _ in range(ROUNDS):
                rates["direct"].append(asyncio.run(closed_loop(engine.address)))
                before = sum(process.cpu_times()[:2])
                rates["gateway"].append(asyncio.run(closed_loop(gateway)))
                cpu.append((sum(process.cpu_times()[:2]) - before) / CALLS)
    print(f"\n{AT_ONCE} at a time, {ROUNDS} rounds of {CALLS} streamed answers:")
    for name, found in rates.items():
        print(f"  {name:8} {statistics.median(found):6.0f} requests/s")
    print(f"  gateway  {min(cpu) * 1e3:.2f} ms of CPU a request: one core carries {1 / min(cpu):.0f} requests/s")
    assert 1 / min(cpu) > 10 * RATE
