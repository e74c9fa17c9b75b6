"""The chat comes first, live: the real command's services, a real Valkey, engines that step in real time."""

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count, pairwise
from pathlib import Path

import pytest

from jobs.prompt import build_messages, response_format
from scheduler.simulation.shapes import Arrival, overload
from scheduler.simulation.tickets import SHORT, Ticket
from tests.engine.log import LogRow
from tests.engine.process import EngineProcess
from tests.simulation.sites import MIDDLE, REPLICAS
from tests.support.balancer import Balancer
from tests.support.chat import Chat, Felt, Outcome, outcomes, ttft_quantiles
from tests.support.gateways import metric
from tests.support.night import Night
from tests.support.shared_night import SharedNight, at_engine, batch_now, most_at_engine, of_class
from tests.support.valkey import ValkeyServer
from tests.support.wait import wait_until
from workers.client import ModelClient

pytestmark = pytest.mark.long

ANSWER = ("--answer-tokens", str(SHORT.output_tokens))
REFUSED = 'tickets_batch_gateway_requests_total{outcome="refused"}'
LONG_ANSWER = Ticket(500, 400)  # some twelve seconds
AWAY_SECONDS = 0.75  # before the limit's feedback could act; measured alone it is a third of that
OVERLOAD_SECONDS = 60.0
FIRST_SECONDS = 5.0  # until the chat has taken its share, not counted
LEAST_OF_STATIC_CAP = 0.9


def talk_with_bursts(seconds: float, burst: int, every_seconds: float) -> Iterator[Arrival]:
    """Two requests a second, and over them many at once."""
    for half in range(1, round(seconds * 2)):
        at = half / 2
        many = burst if at % every_seconds == 0 else 0
        yield from (Arrival(at + number * 0.001, 500, 100) for number in range(1 + many))


def refused_above_floor(felt: list[Felt], batch: list[LogRow], floor: int) -> list[Felt]:
    """The people who were sent away while the engines held more tickets than batch's floor."""
    refused = [each for each in felt if each.outcome is Outcome.REFUSED]
    return [each for each in refused if most_at_engine(batch, each.ended_at, each.ended_at + 0.001) > floor]


def test_a_burst_of_chat_takes_what_batch_has_borrowed(night: Night, valkey: ValkeyServer) -> None:
    burst = 11  # with those who talk already it is less than the chat may ever have
    with EngineProcess(MIDDLE.profile, "--answer-tokens", str(LONG_ANSWER.output_tokens)) as engine:
        shared = SharedNight(night, MIDDLE, engine.base_url, valkey, ticket=LONG_ANSWER)
        shared.begin(tickets=1_000)
        wait_until(lambda: batch_now(engine) > shared.slots - burst, "batch to be where the burst will be", 40)
        with Chat(shared.gateway, talk_with_bursts(1.5, burst, 1.0)) as chat:
            began_at = chat.began_at
            felt = chat.wait(30)
        wait_until(lambda: batch_now(engine) > shared.floor, "batch to be above its floor again", 30)
        assert metric(shared.gateway, REFUSED) == 0
        shared.stop("worker")
        wait_until(lambda: engine.busy() == 0, "the engine to be idle")
        rows = engine.log()
    burst_at = began_at + 1.0
    seconds = ", ".join(f"{quantile:.2f}" for quantile in ttft_quantiles(felt))
    held_from = at_engine(rows, burst_at, time.time())
    over = [ends_at for (_, held), (ends_at, _) in pairwise(held_from) if held > shared.slots]
    away_after_seconds = max(over, default=burst_at) - burst_at
    print(f"\nTTFT p50, p95, p99 {seconds} s; over the engine's slots until {away_after_seconds:.2f} s after the burst")
    assert outcomes(felt) == {Outcome.ANSWERED: burst + 2}
    # Nobody's request ends by itself within so short a time: what stood in the chat's way was withdrawn.
    assert away_after_seconds < AWAY_SECONDS


def test_two_replicas_behind_one_address(night: Night, valkey: ValkeyServer) -> None:
    """A balancer that knows nothing deals out connections; the pool is both engines together."""
    burst = 40  # more than the chat may have: somebody must be sent away
    with (
        EngineProcess(REPLICAS.profile, *ANSWER) as one,
        EngineProcess(REPLICAS.profile, *ANSWER) as other,
        balanced(one, other) as base_url,
    ):
        shared = SharedNight(night, REPLICAS, base_url, valkey, ticket=SHORT)
        shared.begin(tickets=3_000)
        wait_until(lambda: batch_now(one) + batch_now(other) > shared.floor, "batch to be above its floor", 40)
        with Chat(shared.gateway, talk_with_bursts(25.0, burst, 6.0)) as chat:
            felt, began_at = chat.wait(60), chat.began_at
        wait_until(lambda: batch_now(one) + batch_now(other) > shared.floor, "batch to be back", 30)
        shared.stop("worker")
        wait_until(lambda: one.busy() + other.busy() == 0, "the engines to be idle")
        logs = [one.log(), other.log()]
    batch = of_class(logs[0] + logs[1], "batch")
    shares = [sum(row.outcome == "ok" for row in of_class(log, "batch")) for log in logs]
    quantiles = ", ".join(f"{seconds:.3f}" for seconds in ttft_quantiles(felt))
    above = sum(most_at_engine(batch, each.due_at, each.due_at + 0.001) > shared.floor for each in felt)
    print(f"\n{outcomes(felt)}; {above} came while batch was above its floor; TTFT p50, p95, p99 {quantiles} s")
    print(f"tickets by replica {shares}")
    assert set(outcomes(felt)) == {Outcome.ANSWERED, Outcome.REFUSED}
    assert above > burst
    assert refused_above_floor(felt, batch, shared.floor) == []
    assert min(shares) > 0.25 * sum(shares)
    assert most_at_engine(batch, began_at, time.time()) > shared.floor


@pytest.mark.rare
@pytest.mark.timeout(300)
def test_batch_under_permanent_overload_does_as_much_as_a_static_cap_at_its_floor(
    tmp_path: Path, valkey: ValkeyServer
) -> None:
    ours, felt = beside_overload(tmp_path / "ours", valkey, is_ours=True)
    cap, felt_beside_cap = beside_overload(tmp_path / "cap", valkey, is_ours=False)
    for name, rate, people in (("ours", ours, felt), ("cap at the floor", cap, felt_beside_cap)):
        quantiles = ", ".join(f"{seconds:.3f}" for seconds in ttft_quantiles(people))
        print(f"\n{name}: {rate:.2f} tickets/s; TTFT p50, p95, p99 {quantiles} s; {outcomes(people)}", end="")
    print()
    for people in (felt, felt_beside_cap):
        assert set(outcomes(people)) == {Outcome.ANSWERED, Outcome.REFUSED}
        assert outcomes(people)[Outcome.REFUSED] > len(people) / 3
    assert ours >= LEAST_OF_STATIC_CAP * cap


def beside_overload(folder: Path, valkey: ValkeyServer, *, is_ours: bool) -> tuple[float, list[Felt]]:
    """Tickets/s beside a chat that offers twice what the engine can do, and what that chat felt.

    The static cap is a bare loop: as many tickets as the floor has slots are always at the engine, no gate, no ledger.
    """
    folder.mkdir()
    night = Night(folder)
    arrivals = overload(MIDDLE, 1, OVERLOAD_SECONDS)
    try:
        with EngineProcess(MIDDLE.profile, *ANSWER) as engine:
            shared = SharedNight(night, MIDDLE, engine.base_url, valkey, ticket=SHORT)
            if is_ours:
                shared.begin(tickets=1_500)
                wait_until(lambda: batch_now(engine) > shared.floor, "batch to be above its floor", 40)
            else:
                shared.start("gateway")
            with at_static_cap(shared, 0 if is_ours else shared.floor), Chat(shared.gateway, arrivals) as chat:
                felt, began_at = chat.wait(OVERLOAD_SECONDS + 40), chat.began_at
            rows = engine.log()
    finally:
        night.close()
    begin, end = began_at + FIRST_SECONDS, began_at + OVERLOAD_SECONDS
    batch = of_class(rows, "batch")
    assert refused_above_floor([each for each in felt if each.sent_at > begin], batch, shared.floor) == []
    done = sum(row.outcome == "ok" and begin <= (row.ended_at or 0.0) < end for row in batch)
    return done / (end - begin), felt


@contextmanager
def at_static_cap(shared: SharedNight, at_once: int) -> Iterator[None]:
    """So many tickets at the engine all the time, by the product's own client and nothing else of it."""
    leaving = threading.Event()
    numbers = count()

    async def work(client: ModelClient) -> None:
        bodies = shared.bodies(1_000)
        while not leaving.is_set():
            messages = build_messages(shared.spec, "", bodies[next(numbers) % len(bodies)])
            await client.classify(messages, response_format(shared.spec), SHORT.output_tokens, parse=lambda text: text)

    async def run() -> None:
        client = ModelClient(shared.settings.pool[0], at_once=max(1, at_once))
        await asyncio.gather(*(work(client) for _ in range(at_once)))
        await client.aclose()

    thread = threading.Thread(target=lambda: asyncio.run(run()), name="static cap")
    thread.start()
    try:
        yield
    finally:
        leaving.set()
        thread.join()


@contextmanager
def balanced(*engines: EngineProcess) -> Iterator[str]:
    """The address of a balancer in front of engines, on a thread of its own."""
    loop = asyncio.new_event_loop()
    balancer = Balancer([engine.port for engine in engines])
    thread = threading.Thread(target=loop.run_forever, name="balancer")
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(balancer.__aenter__(), loop).result(10)
        yield balancer.base_url
    finally:
        with suppress(TimeoutError):
            asyncio.run_coroutine_threadsafe(balancer.__aexit__(None, None, None), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
