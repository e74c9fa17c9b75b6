"""The engine signal on the real llama.cpp server."""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from urllib.parse import urlsplit

import pytest

from scheduler.signals.engine import EngineMetrics
from tests.integration.test_demo_engine import running
from tests.support.engines import post
from tests.support.shift import pool_settings
from tests.support.wait import wait_until
from tickets_batch.demo import llama_server
from tickets_batch.settings import EngineSignal

SLOTS = 4  # the server's own default


@pytest.fixture(scope="module")
def base_url() -> Iterator[str]:
    with running() as (_, url):
        yield url


def long_answer(base_url: str) -> socket.socket:
    """A streamed request on a connection of its own; closing it ends the request."""
    body = {
        "model": llama_server.MODEL,
        "messages": [{"role": "user", "content": "Tell me a story."}],
        "max_tokens": 1_500,
        "ignore_eos": True,
        "stream": True,
    }
    port = urlsplit(base_url).port
    connection = socket.create_connection(("127.0.0.1", port), timeout=60)
    connection.sendall(post("/v1/chat/completions", body, "content-type: application/json"))
    return connection


def is_seen(base_url: str, running: int, waiting: int) -> bool:
    """True when the signal reads so many requests."""

    async def read() -> bool:
        pool = pool_settings(base_url, engine="llama.cpp", model=llama_server.MODEL)
        metrics = EngineMetrics(pool, EngineSignal(type="engine"))
        try:
            scrape = await metrics.scrape()
        finally:
            await metrics.aclose()
        assert not scrape.counts_first_tokens
        return (scrape.running, scrape.waiting) == (running, waiting)

    return asyncio.run(read())


@pytest.mark.timeout(300)
def test_it_shows_what_runs_and_what_waits_for_a_slot(base_url: str) -> None:
    assert is_seen(base_url, 0, 0)
    with ExitStack() as stack:
        for running, waiting in ((1, 0), (2, 0), (3, 0), (SLOTS, 0), (SLOTS, 1)):
            stack.callback(long_answer(base_url).close)
            wait_until(partial(is_seen, base_url, running, waiting), f"{running} running, {waiting} waiting", 30)
    wait_until(partial(is_seen, base_url, 0, 0), "the slots to be free", 30)
