"""Bare loops over tickets in memory: one process, an answer streamed for each, so many at a time, nothing kept."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any

import httpx2
import openai

from jobs.answer import parse_answer
from jobs.prompt import build_messages, response_format
from tests.benchmarks.plain_celery import SPEC
from tests.support.night import LABELS
from tickets_batch.settings import Pool
from workers.client import ModelClient

Call = Callable[[str], Awaitable[str | None]]
Make = Callable[[str, int], AbstractAsyncContextManager[Call]]


def body(number: int) -> str:
    return f"Parcel {number} has not come, and I have been waiting for more than a week now. Where is it? " * 4


def _request(text: str) -> dict[str, Any]:
    return {
        "model": "test-model",
        "messages": build_messages(SPEC, "", text),
        "response_format": response_format(SPEC),
        "max_tokens": 24,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def _limits(at_once: int) -> httpx2.Limits:
    return httpx2.Limits(max_connections=at_once, max_keepalive_connections=at_once)


@asynccontextmanager
async def http_client(base_url: str, at_once: int) -> AsyncIterator[Call]:
    """The HTTP client that the library is built on, alone."""
    async with httpx2.AsyncClient(limits=_limits(at_once), timeout=None) as client:

        async def call(text: str) -> str:
            said = []
            async with client.stream("POST", f"{base_url}/chat/completions", json=_request(text)) as response:
                async for line in response.aiter_lines():
                    if line.startswith("data: {"):
                        chunk = json.loads(line[6:])
                        said += [choice["delta"].get("content") or "" for choice in chunk["choices"]]
            return str(json.loads("".join(said))["label"])

        yield call


@asynccontextmanager
async def library(base_url: str, at_once: int) -> AsyncIterator[Call]:
    """The library's typed stream."""
    http = httpx2.AsyncClient(limits=_limits(at_once), timeout=None)
    async with openai.AsyncOpenAI(base_url=base_url, api_key="none", max_retries=0, http_client=http) as client:

        async def call(text: str) -> str:
            stream = await client.chat.completions.create(**_request(text))
            said = [chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices]
            return str(json.loads("".join(said))["label"])

        yield call


@asynccontextmanager
async def our_client(base_url: str, at_once: int) -> AsyncIterator[Call]:
    """The product's own."""
    pool = {"name": "gpu", "base_url": base_url, "model": "test-model", "capacity": {"slots": at_once}}
    client = ModelClient(Pool.model_validate(pool), at_once=at_once)
    parse, form = partial(parse_answer, SPEC), response_format(SPEC)

    async def call(text: str) -> str | None:
        return (await client.classify(build_messages(SPEC, "", text), form, 24, parse=parse)).label

    try:
        yield call
    finally:
        await client.aclose()


def seconds_of(make: Make, base_url: str, tickets: int, at_once: int) -> tuple[float, float]:
    """Seconds on the wall, and CPU seconds of this process, for so many tickets."""

    async def run() -> tuple[float, float]:
        left = iter(range(tickets))
        async with make(base_url, at_once) as call:

            async def work() -> None:
                for number in left:
                    assert await call(body(number)) in LABELS

            began, cpu = time.perf_counter(), time.process_time()
            await asyncio.gather(*(work() for _ in range(at_once)))
            return time.perf_counter() - began, time.process_time() - cpu

    return asyncio.run(run())
