"""What the gateway costs a chat request: TTFT added at 20 requests/s, and requests a core carries."""

import asyncio
import statistics
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest

from scheduler.simulation.engine.profile import EngineProfile
from tests.benchmarks.chat_calls import closed_loop, open_loop, percentile
from tests.engine.process import EngineProcess
from tests.support.gateways import chat_settings, commanded
from tests.support.valkey import ValkeyServer

TTFT_TARGET_SECONDS = 0.8
RATE = 20.0
SECONDS = 25.0
AT_ONCE = 16
CALLS = 1200
ROUNDS = 3
ENGINE = EngineProfile(slots=256, kv_capacity_tokens=1 << 24)


@pytest.mark.benchmark
def test_ttft_that_the_gateway_adds(valkey: ValkeyServer, tmp_path: Path) -> None:
    with EngineProcess(ENGINE) as engine:
        settings = chat_settings(valkey.url, engine.base_url, slots=256, tokens=1_000_000)
        with commanded(settings, tmp_path) as (_, gateway):
            waits = asyncio.run(open_loop({"direct": engine.address, "gateway": gateway}, RATE, SECONDS))
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
                rates["direct"].append(asyncio.run(closed_loop(engine.address, CALLS, AT_ONCE)))
                before = sum(process.cpu_times()[:2])
                rates["gateway"].append(asyncio.run(closed_loop(gateway, CALLS, AT_ONCE)))
                cpu.append((sum(process.cpu_times()[:2]) - before) / CALLS)
    print(f"\n{AT_ONCE} at a time, {ROUNDS} rounds of {CALLS} streamed answers:")
    for name, found in rates.items():
        print(f"  {name:8} {statistics.median(found):6.0f} requests/s")
    print(f"  gateway  {min(cpu) * 1e3:.2f} ms of CPU a request: one core carries {1 / min(cpu):.0f} requests/s")
    assert 1 / min(cpu) > 10 * RATE
