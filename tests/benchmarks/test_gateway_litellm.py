"""What the gateway costs a chat request beside LiteLLM's proxy, both in front of the same engine, in turns."""

import asyncio
import os
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import httpx2
import psutil  # type: ignore[import-untyped]
import pytest

from scheduler.simulation.engine.profile import EngineProfile
from tests.benchmarks.chat_calls import BODY, client, closed_loop, open_loop, percentile
from tests.benchmarks.litellm_proxy import proxied
from tests.engine.process import EngineProcess
from tests.support.gateways import chat_settings, commanded
from tests.support.valkey import ValkeyServer

BIN = os.environ.get("LITELLM_BIN", "")
ROUNDS = 3
RATES = (5.0, 20.0)  # the second is more than LiteLLM carries on a core
SECONDS = 6.0
AT_ONCE = 16
CALLS = {"direct": 1200, "gateway": 1200, "litellm": 200}
WARM_CALLS = 50  # what is imported and compiled by the first requests is nobody's cost
ENGINE = EngineProfile(slots=256, kv_capacity_tokens=1 << 24)

pytestmark = [
    pytest.mark.benchmark,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not BIN, reason="LITELLM_BIN names no litellm: make bench-litellm installs one and names it"),
]


class Cost:
    """What a proxy's process has used: CPU milliseconds a request, and the most memory."""

    def __init__(self, process: psutil.Process) -> None:
        self._process = process
        self.cpu_ms: list[float] = []
        self.peak_mb = 0.0

    @contextmanager
    def of(self, calls: int) -> Iterator[None]:
        before = self._seconds()
        yield
        self.cpu_ms.append((self._seconds() - before) / calls * 1e3)
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        self.peak_mb = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) / 1024

    def _seconds(self) -> float:
        times = self._process.cpu_times()
        return float(times.user + times.system)


async def seconds_between_first_and_last(address: str) -> float:
    """Of one answer: nothing where a proxy holds it back until it is whole."""
    request = httpx2.Request(
        "POST", f"{address}/v1/chat/completions", content=BODY, headers={"content-type": "application/json"}
    )
    came = []
    async with client() as transport:
        response = await transport.handle_async_request(request)
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        async for chunk in response.stream:
            if b'"content":"' in chunk:
                came.append(time.perf_counter())
        await response.aclose()
    return came[-1] - came[0]


def test_gateway_beside_litellm(valkey: ValkeyServer, tmp_path: Path) -> None:
    with EngineProcess(ENGINE) as engine:
        settings = chat_settings(valkey.url, engine.base_url, slots=256, tokens=1_000_000)
        with (
            commanded(settings, tmp_path) as (command, gateway),
            proxied(Path(BIN), engine.base_url, tmp_path) as (
                process,
                litellm,
            ),
        ):
            addresses = {"direct": engine.address, "gateway": gateway, "litellm": litellm}
            costs = {"gateway": Cost(psutil.Process(command.pid)), "litellm": Cost(process)}
            for name in addresses:
                asyncio.run(closed_loop(addresses[name], WARM_CALLS, AT_ONCE))
            engine.set_profile(step_base_seconds=0.05)
            spread = {name: asyncio.run(seconds_between_first_and_last(addresses[name])) for name in addresses}
            engine.set_profile(**asdict(ENGINE))
            waits = {rate: ttft(addresses, rate) for rate in RATES}
            engine.set_profile(**asdict(EngineProfile.instant()))
            rates = requests_per_second(addresses, costs)
    for rate, of_rate in waits.items():
        print(f"\n{rate:g} requests/s, each alone, {ROUNDS} rounds of {SECONDS:g} s, {len(of_rate['direct'])} counted:")
        for name, found in of_rate.items():
            p50, p99 = (percentile(found, percent) * 1e3 for percent in (50, 99))
            base = [percentile(of_rate["direct"], percent) * 1e3 for percent in (50, 99)]
            print(
                f"  {name:8} TTFT p50 {p50:7.1f} ms, p99 {p99:7.1f}; adds {p50 - base[0]:7.1f} and {p99 - base[1]:7.1f}"
            )
    print(f"{AT_ONCE} at a time, median of {ROUNDS} rounds:")
    for name, per_second in rates.items():
        print(f"  {name:8} {statistics.median(per_second):6.0f} requests/s")
    for name, cost in costs.items():
        print(f"  {name:8} {statistics.median(cost.cpu_ms):6.2f} ms of CPU a request, at most {cost.peak_mb:.0f} MB")
    for name, seconds in spread.items():
        assert seconds > 0.2, f"{name} does not stream: first and last text are {seconds:.3f} s apart"
    assert statistics.median(rates["gateway"]) > statistics.median(rates["litellm"])
    for of_rate in waits.values():
        assert percentile(of_rate["gateway"], 50) < percentile(of_rate["litellm"], 50)


def ttft(addresses: dict[str, str], rate: float) -> dict[str, list[float]]:
    """Seconds to the first text at a fixed rate, each address alone."""
    waits: dict[str, list[float]] = {name: [] for name in addresses}
    for _ in range(ROUNDS):
        for name, address in addresses.items():
            waits[name] += asyncio.run(open_loop({name: address}, rate, SECONDS))[name]
    return waits


def requests_per_second(addresses: dict[str, str], costs: dict[str, Cost]) -> dict[str, list[float]]:
    """With so many at a time, each address alone."""
    rates: dict[str, list[float]] = {name: [] for name in addresses}
    for _ in range(ROUNDS):
        rates["direct"].append(asyncio.run(closed_loop(addresses["direct"], CALLS["direct"], AT_ONCE)))
        for name, cost in costs.items():
            with cost.of(CALLS[name]):
                rates[name].append(asyncio.run(closed_loop(addresses[name], CALLS[name], AT_ONCE)))
    return rates
