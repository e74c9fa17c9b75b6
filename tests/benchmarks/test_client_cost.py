"""What one call costs the process that makes it: the library's typed stream, our client, a bare HTTP loop."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager

import httpx2
import openai
import pytest

from jobs.answer import InvalidOutput
from scheduler.simulation.engine.profile import EngineProfile
from tests.engine.process import EngineProcess
from tickets_batch.settings import Pool
from workers.client import ModelClient

ROUNDS = 6
CALLS = 400
LABELS = ["account", "billing", "shipping"]
SCHEMA = {"type": "object", "properties": {"label": {"type": "string", "enum": LABELS}}, "required": ["label"]}
FORMAT = {"type": "json_schema", "json_schema": {"name": "label", "schema": SCHEMA}}
MESSAGES = [
    {"role": "system", "content": "You sort support tickets. " * 40},
    {"role": "user", "content": "My parcel has not arrived. " * 20},
]
REQUEST = {
    "model": "test-model",
    "messages": MESSAGES,
    "response_format": FORMAT,
    "max_tokens": 32,
    "temperature": 0,
    "stream": True,
    "stream_options": {"include_usage": True},
}

Call = Callable[[], Awaitable[str | None]]


def _label(text: str) -> str | InvalidOutput:
    return str(json.loads(text)["label"])


@asynccontextmanager
async def typed_stream(base_url: str, at_once: int) -> AsyncIterator[Call]:
    http = httpx2.AsyncClient(limits=_limits(at_once), timeout=None)
    async with openai.AsyncOpenAI(base_url=base_url, api_key="none", max_retries=0, http_client=http) as client:

        async def call() -> str | None:
            stream = await client.chat.completions.create(**REQUEST)  # type: ignore[call-overload]
            said = [chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices]
            return str(_label("".join(said)))

        yield call


@asynccontextmanager
async def our_client(base_url: str, at_once: int) -> AsyncIterator[Call]:
    pool = Pool.model_validate(
        {"name": "gpu", "base_url": base_url, "model": "test-model", "capacity": {"slots": at_once}}
    )
    client = ModelClient(pool, at_once=at_once)

    async def call() -> str | None:
        return (await client.classify(MESSAGES, FORMAT, 32, parse=_label)).label

    try:
        yield call
    finally:
        await client.aclose()


@asynccontextmanager
async def bare_loop(base_url: str, at_once: int) -> AsyncIterator[Call]:
    async with httpx2.AsyncClient(limits=_limits(at_once), timeout=None) as client:

        async def call() -> str | None:
            said = []
            async with client.stream("POST", f"{base_url}/chat/completions", json=REQUEST) as response:
                async for line in response.aiter_lines():
                    if line.startswith("data: {"):
                        chunk = json.loads(line[6:])
                        said += [choice["delta"].get("content") or "" for choice in chunk["choices"]]
            return str(_label("".join(said)))

        yield call


def _limits(at_once: int) -> httpx2.Limits:
    return httpx2.Limits(max_connections=at_once, max_keepalive_connections=at_once)


async def _measure(call: Call, at_once: int) -> tuple[float, float]:
    """CPU seconds of this process and seconds on the wall, per call."""
    left = iter(range(CALLS))

    async def work() -> None:
        for _ in left:
            assert await call() in LABELS

    wall, cpu = time.perf_counter(), time.process_time()
    await asyncio.gather(*(work() for _ in range(at_once)))
    return (time.process_time() - cpu) / CALLS, (time.perf_counter() - wall) / CALLS


async def _compare(base_url: str, at_once: int) -> dict[str, tuple[float, float]]:
    """The best of several rounds for each, taken in turns so that a busy machine is fair to all."""
    best: dict[str, tuple[float, float]] = {}
    async with AsyncExitStack() as stack:
        calls = {
            make.__name__: await stack.enter_async_context(make(base_url, at_once))
            for make in (typed_stream, our_client, bare_loop)
        }
        for _ in range(ROUNDS):
            for name, call in calls.items():
                cpu, wall = await _measure(call, at_once)
                least_cpu, least_wall = best.get(name, (cpu, wall))
                best[name] = (min(cpu, least_cpu), min(wall, least_wall))
    return best


@pytest.mark.benchmark
@pytest.mark.parametrize("at_once", [32, 200])
def test_cost_of_a_call(at_once: int) -> None:
    with EngineProcess(EngineProfile.instant()) as engine:
        best = asyncio.run(_compare(engine.base_url, at_once))
    print(f"\n{at_once} calls at a time, best of {ROUNDS} rounds of {CALLS}:")
    for name, (cpu, wall) in best.items():
        print(f"  {name.replace('_', ' '):14}{cpu * 1e6:7.0f} us of CPU a call,{1 / wall:6.0f} calls/s")
    assert best["our_client"][0] < 0.6 * best["bare_loop"][0]
