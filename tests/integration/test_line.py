"""The line to Redis on a real Valkey server: many callers, one connection's trips, and each its own answer."""

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from hashlib import sha1
from typing import Any

import pytest
from redis.asyncio import Redis
from redis.exceptions import RedisError, ResponseError

from scheduler.line import CALL_SECONDS, Line
from tests.support.valkey import ValkeyServer

SCRIPTS = {
    "echo": "return { KEYS[1], ARGV[1], ARGV[2] }",
    "count": "return redis.call('INCRBY', KEYS[1], ARGV[2])",
    "fail": "return redis.error_reply('ERR ' .. ARGV[2])",
}


@asynccontextmanager
async def opened(server: ValkeyServer) -> AsyncIterator[Line]:
    line = Line(Redis.from_url(server.url, decode_responses=True), SCRIPTS, ["counter"], [7])
    yield line
    await line.aclose()


def play(scene: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(30):
            await scene()

    asyncio.run(bounded())


def reads(server: ValkeyServer) -> int:
    """How often the server has read from any client."""
    with server.client() as client:
        return int(client.info("stats")["total_reads_processed"])


def test_calls_made_at_once_go_out_together_and_each_has_its_own_answer(valkey: ValkeyServer) -> None:
    async def scene() -> None:
        async with opened(valkey) as line:
            await line.call("echo", "first")
            before = reads(valkey)
            answers = await asyncio.gather(*(line.call("echo", number) for number in range(90)))
            assert answers == [["counter", "7", str(number)] for number in range(90)]
            assert reads(valkey) - before < 30

    play(scene)


def test_more_calls_than_a_group_holds_are_all_made_in_their_order(valkey: ValkeyServer) -> None:
    async def scene() -> None:
        async with opened(valkey) as line:
            assert await asyncio.gather(*(line.call("count", 1) for _ in range(350))) == list(range(1, 351))

    play(scene)


def test_an_error_is_only_for_the_call_that_made_it(valkey: ValkeyServer) -> None:
    async def scene() -> None:
        async with opened(valkey) as line:
            one, wrong, two = (
                asyncio.create_task(line.call(*call)) for call in (("count", 1), ("fail", "no"), ("count", 1))
            )
            with pytest.raises(ResponseError, match="no"):
                await wrong
            assert (await one, await two) == (1, 2)

    play(scene)


def test_the_first_call_has_all_scripts_loaded_so_that_none_overtakes_another_for_being_known(
    valkey: ValkeyServer,
) -> None:
    async def scene() -> None:
        async with opened(valkey) as line:
            with valkey.client() as client:
                client.script_flush()
                await line.call("echo", "first")
                assert (
                    client.script_exists(*(sha1(text.encode()).hexdigest() for text in SCRIPTS.values())) == [True] * 3
                )

    play(scene)


def test_scripts_that_the_server_forgot_are_loaded_and_no_call_is_made_twice(valkey: ValkeyServer) -> None:
    async def scene() -> None:
        async with opened(valkey) as line:
            await line.call("echo", "known")
            with valkey.client() as client:
                client.script_flush()
                client.script_load(SCRIPTS["echo"])  # so that one of the two is known, and one is not
            calls = [line.call(script, 1) for script in ("echo", "count") for _ in range(20)]
            answers = await asyncio.gather(*calls)
            assert answers == [["counter", "7", "1"]] * 20 + list(range(1, 21))

    play(scene)


def test_a_caller_who_left_before_its_turn_is_not_sent_and_disturbs_nobody(valkey: ValkeyServer) -> None:
    async def scene() -> None:
        async with opened(valkey) as line:
            calls = [asyncio.create_task(line.call("count", 1)) for _ in range(3)]
            await asyncio.sleep(0)  # they have asked, nothing is sent
            calls[1].cancel()
            answers = await asyncio.gather(*calls, return_exceptions=True)
            assert (answers[0], answers[2]) == (1, 2)
            assert isinstance(answers[1], asyncio.CancelledError)
            assert await line.call("count", 0) == 2

    play(scene)


def test_a_silent_server_fails_every_caller_in_the_time_of_one_and_is_used_again(valkey: ValkeyServer) -> None:
    async def scene() -> None:
        assert valkey.process is not None
        async with opened(valkey) as line:
            await line.call("echo", "awake")
            valkey.process.send_signal(signal.SIGSTOP)
            try:
                began = time.monotonic()
                first = asyncio.create_task(line.call("echo", "first"))
                await asyncio.sleep(CALL_SECONDS / 2)  # it is on its way
                others = [asyncio.create_task(line.call("echo", number)) for number in range(150)]
                answers = await asyncio.gather(first, *others, return_exceptions=True)
                assert time.monotonic() - began < CALL_SECONDS + 1
            finally:
                valkey.process.send_signal(signal.SIGCONT)
            assert all(isinstance(answer, RedisError | OSError) for answer in answers)
            assert await line.call("echo", "awake again") == ["counter", "7", "awake again"]

    play(scene)


def test_closing_leaves_nobody_waiting(valkey: ValkeyServer) -> None:
    async def scene() -> None:
        assert valkey.process is not None
        async with opened(valkey) as line:
            await line.call("echo", "awake")
            valkey.process.send_signal(signal.SIGSTOP)
            try:
                calls = [asyncio.create_task(line.call("echo", number)) for number in range(150)]
                await asyncio.sleep(0)
                await line.aclose()
                answers = await asyncio.gather(*calls, return_exceptions=True)
            finally:
                valkey.process.send_signal(signal.SIGCONT)
            assert all(isinstance(answer, asyncio.CancelledError) for answer in answers)

    play(scene)


@pytest.mark.parametrize("restarts", [1, 3])
def test_a_server_that_was_restarted_is_found_again(valkey: ValkeyServer, restarts: int) -> None:
    async def scene() -> None:
        redis = Redis.from_url(valkey.url, decode_responses=True)
        line = Line(redis, SCRIPTS, ["counter"], [7])
        for _ in range(restarts):
            await line.call("count", 1)
            valkey.kill()
            with pytest.raises((RedisError, OSError)):
                await line.call("count", 1)
            valkey.start()
        assert await line.call("count", 1) == 1
        await line.aclose()

    play(scene)
