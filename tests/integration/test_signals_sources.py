"""A pool's signals at work: the test engine live, the ledger on a real Valkey server, and what they make of it."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager
from typing import Any

import pytest

from scheduler.ledger import Ledger
from scheduler.permit import Ask, Kind, Permit, PublishedLimit
from scheduler.pools import capacity_of
from scheduler.signals.load import Load
from scheduler.signals.poll import STALE_SECONDS
from scheduler.signals.sources import PoolSignals
from scheduler.simulation.engine.profile import EngineProfile
from tests.engine.process import EngineHandle, EngineProcess, EngineThread
from tests.support.balancer import Balancer
from tests.support.canned import CannedServer, whole
from tests.support.engines import chat_body, start
from tests.support.shift import pool_settings
from tests.support.skipping import RunningClock
from tests.support.valkey import ValkeyServer
from tests.support.wait import wait_until_async

ASK = Ask(prompt_tokens=500, output_tokens=100)
SLOW = EngineProfile(step_base_seconds=0.01)
ENDLESS = 20_000  # tokens: at 10 ms each, longer than any test


class Scene:
    """The signals of one pool, with its ledger and a clock that may be moved on."""

    def __init__(self, signals: PoolSignals, ledger: Ledger, clock: RunningClock) -> None:
        self.signals = signals
        self.ledger = ledger
        self.clock = clock
        self.arrivals = 0
        self.ttfts: list[float] = []

    async def read(self) -> Load:
        load = await self.signals.read()
        self.arrivals += load.arrivals
        self.ttfts += load.ttfts_seconds
        return load

    async def until(self, condition: Callable[[Load], bool], what: str) -> Load:
        """The first reading, a few a second, of which the condition is true."""

        async def found() -> Load | None:
            load = await self.read()
            return load if condition(load) else None

        load = await wait_until_async(found, what, timeout_seconds=20, interval_seconds=0.1)
        assert load is not None
        return load

    async def take(self, kind: Kind) -> Permit:
        permit = await self.ledger.acquire(kind, ASK)
        assert isinstance(permit, Permit), permit
        return permit


@asynccontextmanager
async def watching(
    valkey: ValkeyServer, base_url: str, *signals: dict[str, Any], **changes: Any
) -> AsyncIterator[Scene]:
    pool = pool_settings(base_url, signal=signals, **changes)
    ledger = Ledger.connect(valkey.url, pool.name, capacity_of(pool), lease_seconds=30)
    await ledger.found()
    await ledger.publish(PublishedLimit(ledger.capacity.most_batch, 60_000), ttl_seconds=60, leader_epoch=1)
    clock = RunningClock()
    pool_signals = PoolSignals(pool, ledger, clock.monotonic)
    await pool_signals.open()
    try:
        yield Scene(pool_signals, ledger, clock)
    finally:
        await pool_signals.aclose()
        await ledger.aclose()


def chats(stack: ExitStack, engine: EngineHandle, count: int) -> None:
    """So many endless requests in the engine, which end with the stack."""
    for _ in range(count):
        connection: socket.socket = start(engine, chat_body(ENDLESS, stream=True))
        stack.callback(connection.close)


ENGINE = {"type": "engine"}
LEDGER = {"type": "ledger"}
PROBE = {"type": "probe", "every_seconds": 1}


class TestEngine:
    def test_chat_that_passes_no_gateway_is_seen_told_to_the_ledger_and_gone_again(self, valkey: ValkeyServer) -> None:
        async def scene(engine: EngineHandle) -> None:
            async with watching(valkey, engine.base_url, ENGINE) as scene:
                await scene.until(lambda load: not load.is_blind, "the engine to be seen")
                with ExitStack() as stack:
                    chats(stack, engine, 3)
                    load = await scene.until(lambda load: load.in_flight.slots == 3, "chat to be seen")
                    assert load.in_flight.tokens == 3 * 3_000  # a protected slot's share, while nothing better is known
                    snapshot = await scene.ledger.snapshot()
                    assert snapshot.observed_is_fresh
                    assert snapshot.observed == load.in_flight
                await scene.until(lambda load: load.in_flight.slots == 0, "chat to be gone")
                assert scene.arrivals == 3
                assert len(scene.ttfts) == 3

        with EngineThread(SLOW) as engine:
            asyncio.run(scene(engine))

    def test_what_batch_holds_is_not_chat(self, valkey: ValkeyServer) -> None:
        async def scene(engine: EngineHandle) -> None:
            async with watching(valkey, engine.base_url, ENGINE) as scene:
                with ExitStack() as stack:
                    permits = [await scene.take(Kind.BATCH) for _ in range(5)]
                    chats(stack, engine, 5)
                    for permit in permits:
                        await scene.ledger.first_token(permit)
                    await wait_until_async(lambda: engine.busy() == 5, "batch to be in the engine")
                    chats(stack, engine, 2)
                    load = await scene.until(lambda load: load.in_flight.slots > 0, "chat beside batch")
                    assert (load.in_flight.slots, load.batch_in_flight.slots) == (2, 5)

        with EngineThread(SLOW) as engine:
            asyncio.run(scene(engine))

    def test_an_engine_that_queues_is_congested(self, valkey: ValkeyServer) -> None:
        async def scene(engine: EngineHandle) -> None:
            async with watching(valkey, engine.base_url, ENGINE) as scene:
                with ExitStack() as stack:
                    chats(stack, engine, 6)
                    load = await scene.until(lambda load: load.is_congested, "congestion")
                    assert load.waiting == 4

        with EngineThread(EngineProfile(slots=2, step_base_seconds=0.01)) as engine:
            asyncio.run(scene(engine))

    def test_without_its_page_the_pool_is_blind_and_sees_again_when_it_is_back(self, valkey: ValkeyServer) -> None:
        async def scene(engine: EngineHandle) -> None:
            async with watching(valkey, engine.base_url, ENGINE) as scene:
                await scene.until(lambda load: not load.is_blind, "the engine to be seen")
                engine.change_settings(metrics_gone=True)
                await scene.until(lambda load: load.is_blind, "the pool to be blind")
                engine.change_settings(metrics_gone=False)
                load = await scene.until(lambda load: not load.is_blind, "the engine to be seen again")
                assert [source.name for source in load.sources] == ["engine"]

        with EngineThread(SLOW) as engine:
            asyncio.run(scene(engine))

    def test_a_frozen_engine_makes_the_pool_blind_and_keeps_nobody_waiting(self, valkey: ValkeyServer) -> None:
        async def scene(engine: EngineProcess) -> None:
            async with watching(valkey, engine.base_url, ENGINE) as scene:
                await scene.until(lambda load: not load.is_blind, "the engine to be seen")
                engine.pause()
                scene.clock.skip(STALE_SECONDS)
                load = await asyncio.wait_for(scene.read(), timeout=1.5)  # a scrape that waits takes 2 s
                assert load.is_blind
                engine.resume()
                await scene.until(lambda load: not load.is_blind, "the engine to be seen again")

        with EngineProcess(SLOW) as engine:
            asyncio.run(scene(engine))

    @pytest.mark.parametrize("by", ["balancer", "url"])
    def test_two_replicas_add_up(self, valkey: ValkeyServer, by: str) -> None:
        async def scene(first: EngineHandle, second: EngineHandle) -> None:
            async with Balancer([first.port, second.port]) as balancer:
                each = [{"type": "engine", "url": f"{engine.address}/metrics"} for engine in (first, second)]
                signals = [ENGINE] if by == "balancer" else each
                with ExitStack() as stack:
                    async with watching(valkey, balancer.base_url, *signals) as scene:
                        permits = [await scene.take(Kind.BATCH) for _ in range(4)]
                        chats(stack, first, 4)
                        for permit in permits:
                            await scene.ledger.first_token(permit)
                        chats(stack, second, 3)
                        load = await scene.until(lambda load: load.in_flight.slots == 3, "chat on one of two replicas")
                        assert len(load.sources) == len(signals)

        with EngineThread(SLOW) as first, EngineThread(SLOW) as second:
            asyncio.run(scene(first, second))


class TestLedger:
    def test_every_request_is_counted_and_the_gateways_beat_makes_it_seeing(self, valkey: ValkeyServer) -> None:
        async def scene() -> None:
            async with watching(valkey, "http://127.0.0.1:9/v1", LEDGER) as scene:
                assert (await scene.read()).is_blind
                await scene.ledger.beat()
                first, second = await scene.take(Kind.INTERACTIVE), await scene.take(Kind.INTERACTIVE)
                await scene.ledger.first_token(first)
                load = await scene.read()
                assert not load.is_blind
                assert (load.in_flight.slots, load.in_flight.tokens) == (2, 1200)
                assert (load.waiting, load.arrivals, len(load.ttfts_seconds)) == (1, 2, 1)
                await wait_until_async(scene.ledger.snapshot, "time to pass")
                assert (await scene.read()).oldest_waiting_seconds > 0
                await scene.ledger.first_token(second)
                load = await scene.read()
                assert (load.waiting, load.arrivals, len(load.ttfts_seconds)) == (0, 0, 1)

        asyncio.run(scene())

    def test_a_beat_that_stops_makes_it_blind_though_its_permits_still_count(self, valkey: ValkeyServer) -> None:
        async def scene() -> None:
            async with watching(valkey, "http://127.0.0.1:9/v1", LEDGER) as scene:
                await scene.ledger.beat()
                await scene.take(Kind.INTERACTIVE)
                load = await scene.until(lambda load: load.is_blind, "the beat to be missed")
                assert load.in_flight.slots == 1
                assert load.sources[0].age_seconds is not None
                assert load.sources[0].age_seconds >= STALE_SECONDS

        asyncio.run(scene())

    def test_what_came_while_nobody_looked_is_no_news(self, valkey: ValkeyServer) -> None:
        async def scene() -> None:
            async with watching(valkey, "http://127.0.0.1:9/v1", LEDGER) as scene:
                await scene.read()
                permit = await scene.take(Kind.INTERACTIVE)
                await scene.ledger.first_token(permit)
                scene.clock.skip(STALE_SECONDS + 1)
                load = await scene.read()
                assert (load.in_flight.slots, load.arrivals, load.ttfts_seconds) == (1, 0, ())
                await scene.take(Kind.INTERACTIVE)
                assert (await scene.read()).arrivals == 1

        asyncio.run(scene())

    def test_a_redis_that_restarts_empty_makes_no_chat_of_batch_and_no_news_of_old(self, valkey: ValkeyServer) -> None:
        async def scene(engine: EngineHandle) -> None:
            async with watching(valkey, engine.base_url, LEDGER, ENGINE) as scene:
                with ExitStack() as stack:
                    permits = [await scene.take(Kind.BATCH) for _ in range(5)]
                    await scene.take(Kind.INTERACTIVE)
                    chats(stack, engine, 6)
                    for permit in permits:
                        await scene.ledger.first_token(permit)
                    await scene.until(lambda load: not load.is_blind, "the engine to be seen")
                    with valkey.client() as client:
                        client.flushall()
                    for _ in range(8):
                        load = await scene.read()
                        assert load.in_flight.slots <= 1
                        assert load.arrivals >= 0
                        await asyncio.sleep(0.25)

        with EngineThread(SLOW) as engine:
            asyncio.run(scene(engine))

    def test_of_two_sources_the_larger_load_and_the_counted_arrivals_stand(self, valkey: ValkeyServer) -> None:
        async def scene(engine: EngineHandle) -> None:
            async with watching(valkey, engine.base_url, LEDGER, ENGINE) as scene:
                await scene.ledger.beat()
                await scene.until(lambda load: all(source.is_fresh for source in load.sources), "both to be seen")
                with ExitStack() as stack:
                    chats(stack, engine, 3)
                    await scene.take(Kind.INTERACTIVE)
                    await scene.ledger.beat()
                    await scene.until(lambda load: load.in_flight.slots == 3, "the two that pass no gateway")
                    assert scene.arrivals == 1

        with EngineThread(SLOW) as engine:
            asyncio.run(scene(engine))


class TestOwnRequests:
    def test_batch_that_queues_slows_batch_down_and_makes_no_pool_seeing(self, valkey: ValkeyServer) -> None:
        async def scene() -> None:
            async with watching(valkey, "http://127.0.0.1:9/v1") as scene:
                for _ in range(10):
                    await first_token_after(scene, 0.02)
                load = await scene.read()
                assert load.prefill_rate is None  # what was before we looked is no news
                for _ in range(10):
                    await first_token_after(scene, 0.02)
                load = await scene.read()
                assert load.prefill_rate is not None
                assert not load.is_congested
                for _ in range(3):
                    await first_token_after(scene, 0.5)
                load = await scene.read()
                assert load.is_congested
                assert load.is_blind

        async def first_token_after(scene: Scene, seconds: float) -> None:
            permit = await scene.take(Kind.BATCH)
            await asyncio.sleep(seconds)  # the subject: how long the request waits
            await scene.ledger.first_token(permit)
            await scene.ledger.release(permit)

        asyncio.run(scene())


class TestProbe:
    def test_it_measures_what_chat_would_feel_and_is_no_chat_itself(self, valkey: ValkeyServer) -> None:
        async def scene(engine: EngineHandle) -> None:
            async with watching(valkey, engine.base_url, PROBE, ENGINE) as scene:
                await scene.until(lambda load: all(source.is_fresh for source in load.sources), "both to be seen")
                await scene.until(lambda _: len(engine.log()) >= 3, "three probes")
                assert len(scene.ttfts) >= 2
                assert all(0 < seconds < 5 for seconds in scene.ttfts)
                assert scene.arrivals == 0
                said = {(row.max_tokens, row.stream, row.priority, row.output_tokens) for row in engine.log()}
                assert said == {(1, True, 0, 1)}

        with EngineThread(EngineProfile(step_base_seconds=0.05)) as engine:
            asyncio.run(scene(engine))

    def test_one_that_waits_is_a_wait_at_once_and_blind_when_none_comes(self, valkey: ValkeyServer) -> None:
        async def scene(engine: EngineHandle) -> None:
            async with watching(valkey, engine.base_url, PROBE) as scene:
                await scene.until(lambda load: bool(load.ttfts_seconds), "a probe to be answered")
                engine.freeze()
                await scene.until(lambda load: load.oldest_waiting_seconds > 0.8, "a probe to wait")
                scene.clock.skip(1 + STALE_SECONDS)
                assert (await scene.read()).is_blind
                engine.thaw()
                await scene.until(lambda load: not load.is_blind, "a probe to be answered again")

        with EngineThread(SLOW) as engine:
            asyncio.run(scene(engine))

    def test_one_that_waits_in_the_engine_is_neither_chat_nor_congestion(self, valkey: ValkeyServer) -> None:
        async def scene(engine: EngineHandle) -> None:
            async with watching(valkey, engine.base_url, PROBE, ENGINE) as scene:
                engine.freeze()
                await wait_until_async(lambda: engine.state()["waiting"] == 1, "the probe to be in the engine")
                for _ in range(8):  # four scrapes
                    load = await scene.read()
                    assert (load.in_flight.slots, load.waiting, load.is_congested) == (0, 0, False)
                    await asyncio.sleep(0.25)

        with EngineThread(SLOW) as engine:
            asyncio.run(scene(engine))

    @pytest.mark.parametrize("status", [401, 500])
    def test_a_refused_probe_sees_nothing(self, valkey: ValkeyServer, status: int) -> None:
        async def scene() -> None:
            async with CannedServer(whole(status)) as server, watching(valkey, server.base_url, PROBE) as scene:
                await wait_until_async(lambda: server.requests, "a probe")
                assert (await scene.read()).is_blind

        asyncio.run(scene())


class TestPrometheus:
    def test_its_answers_are_chat_and_told_to_the_ledger(self, valkey: ValkeyServer) -> None:
        body = b'{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1796025072,"4"]}]}}'

        async def scene() -> None:
            async with CannedServer(whole(200, body)) as server:
                url = server.base_url.removesuffix("/v1")
                signal = {"type": "prometheus", "url": url, "in_flight": "a", "waiting": "b", "ttft": "c"}
                async with watching(valkey, "http://127.0.0.1:9/v1", signal) as scene:
                    load = await scene.until(lambda load: not load.is_blind, "an answer")
                    assert (load.in_flight.slots, load.waiting, load.ttfts_seconds) == (4, 4, (4.0,))
                    assert (await scene.ledger.snapshot()).observed.slots == 4

        asyncio.run(scene())


class TestDedicated:
    def test_it_needs_no_signal(self, valkey: ValkeyServer) -> None:
        whole_pool = {"slots": 20, "tokens": 60_000}
        protected = {"interactive": {"slots": 0, "tokens": 0}, "batch": whole_pool}

        async def scene() -> None:
            async with watching(valkey, "http://127.0.0.1:9/v1", capacity=whole_pool, protected=protected) as scene:
                assert not (await scene.read()).is_blind

        asyncio.run(scene())
