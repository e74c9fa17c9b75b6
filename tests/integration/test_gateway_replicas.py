"""The gateway in front of a balancer that deals out connections: each replica has its share of the requests."""

import asyncio
import json
from collections.abc import Sequence

from gateway.upstream import Answer, Upstream
from tests.engine.process import EngineThread
from tests.support.balancer import Balancer
from tests.support.engines import SLOW, chat_body
from tests.support.gateways import chat_settings

BODY = json.dumps(chat_body(2)).encode()
HEADERS = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(BODY))]


def test_connections_that_rest_take_turns() -> None:
    with EngineThread(SLOW) as first, EngineThread(SLOW) as second:
        asyncio.run(ask_one_by_one([first.port, second.port], requests=12))
        assert (len(first.log()), len(second.log())) == (7, 7)


async def ask_one_by_one(ports: Sequence[int], requests: int) -> None:
    """Two at once, so that each replica has a connection, then one at a time."""
    async with Balancer(ports) as balancer:
        pool = chat_settings("redis://127.0.0.1:1/0", balancer.base_url).pool[0]
        upstream = Upstream(pool)
        try:
            both = await asyncio.gather(*(ask(upstream) for _ in ports))
            for answer in both:
                await read(answer)
            for _ in range(requests):
                await read(await ask(upstream))
        finally:
            upstream.close()


async def ask(upstream: Upstream) -> Answer:
    return await upstream.send("POST", b"/v1/chat/completions", HEADERS, BODY)


async def read(answer: Answer) -> None:
    async for _ in answer:
        pass
    answer.close()
