"""Chat goes on whatever becomes of Redis, in time, counted and said; afterwards what is in flight is known again."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import openai
import pytest

from tests.engine.process import EngineThread
from tests.support.engines import chat_body
from tests.support.gateways import chat_settings, complete, http, metric, running, send, snapshot, until
from tests.support.valkey import ValkeyServer
from tests.support.wait import wait_until
from tickets_batch.settings import Settings

pytest_plugins = ["tests.support.engine_fixtures"]

OPEN = "tickets_batch_gateway_admitted_open_total"
LONG = chat_body(10_000, stream=True)


@contextmanager
def stopped(server: ValkeyServer) -> Iterator[None]:
    assert server.process is not None
    os.kill(server.process.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(server.process.pid, signal.SIGCONT)


@pytest.fixture
def settings(own_valkey: ValkeyServer, slow_engine: EngineThread) -> Settings:
    slow_engine.set_profile(slots=4)
    return chat_settings(own_valkey.url, slow_engine.base_url, tokens=80_000, max_output_tokens=10_000)


def redis_is(door: str, state: str) -> bool:
    return bool(http(door, "GET", "/healthz")[1]["pools"]["gpu"]["redis"] == state)


def outages(caplog: pytest.LogCaptureFixture) -> int:
    return sum("let in unasked" in record.message for record in caplog.records)


def test_a_redis_that_hangs_costs_a_moment_once(
    settings: Settings, own_valkey: ValkeyServer, caplog: pytest.LogCaptureFixture
) -> None:
    with running(settings) as door:
        complete(door, chat_body(1))
        with stopped(own_valkey):
            waits = []
            for _ in range(6):
                begun = time.monotonic()
                complete(door, chat_body(1))
                waits.append(time.monotonic() - begun)
            assert redis_is(door, "away")
            assert metric(door, OPEN) == 6
        # Asked each time, it would have cost 0.4 s each time, or three seconds.
        assert max(waits) < 1.5
        assert sorted(waits)[2] < 0.25
        wait_until(lambda: redis_is(door, "ok"), "Redis to be asked again")
        complete(door, chat_body(1))
        assert metric(door, OPEN) == 6
        assert outages(caplog) == 1
        # The answer that nobody waited for any more was a permit: without being given back it would stay for a lease.
        wait_until(lambda: snapshot(settings).interactive.slots == 0, "nothing to be left behind", timeout_seconds=3)


def test_a_redis_that_is_gone_and_comes_back_empty(
    settings: Settings, own_valkey: ValkeyServer, caplog: pytest.LogCaptureFixture
) -> None:
    with running(settings) as door, send(door, LONG) as before:
        until(before, b'"content":"t')
        own_valkey.kill()
        with send(door, LONG) as meanwhile:
            until(meanwhile, b'"content":"t')
            assert metric(door, OPEN) == 1
            own_valkey.start()
            wait_until(lambda: snapshot(settings).interactive.slots == 2, "what is in flight to be entered again")
            assert snapshot(settings).interactive_waiting == 0
            assert outages(caplog) == 1
        wait_until(lambda: snapshot(settings).interactive.slots == 1, "the other's room to be given back")


def test_while_redis_is_away_even_a_full_pool_lets_chat_in(
    settings: Settings, own_valkey: ValkeyServer, slow_engine: EngineThread
) -> None:
    with running(settings) as door:
        chats = [send(door, LONG) for _ in range(3)]
        wait_until(lambda: slow_engine.busy() == 3, "the chat's share to be in use")
        with pytest.raises(openai.RateLimitError):
            complete(door, chat_body(1))
        own_valkey.kill()
        complete(door, chat_body(1))
        for chat in chats:
            chat.close()
        own_valkey.start()


def test_it_begins_without_redis(slow_engine: EngineThread, tmp_path: Path) -> None:
    absent = ValkeyServer(tmp_path)
    with running(chat_settings(absent.url, slow_engine.base_url)) as door:
        complete(door, chat_body(1))
        assert metric(door, OPEN) == 1
        absent.start()
        wait_until(lambda: redis_is(door, "ok"), "Redis to be found")
        complete(door, chat_body(1))
        assert metric(door, OPEN) == 1
    absent.kill()
