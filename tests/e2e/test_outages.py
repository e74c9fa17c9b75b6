"""What the chat and the batch need is gone for a while: batch goes to its floor, chat goes on, and all comes back.

The chat comes through the gateway all the time, about two requests a second. What batch holds is judged by the log of
the engine, by which nobody else's idea of it counts.
"""

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from scheduler.control import LIMIT_SECONDS, PERIOD_SECONDS
from scheduler.ledger import LEASE_SECONDS
from scheduler.limit import CALM_SECONDS
from scheduler.pull_back import DRAINER_MS
from scheduler.signals.poll import STALE_SECONDS
from scheduler.simulation.tickets import SHORT, Ticket
from tests.engine.log import LogRow
from tests.engine.process import EngineProcess
from tests.simulation.sites import MIDDLE
from tests.support.chat import Chat, Felt, Outcome, outcomes, steady, ttft_quantiles
from tests.support.gateways import http, metric
from tests.support.night import Night
from tests.support.shared_night import SharedNight, at_engine, batch_now, most_at_engine, of_class
from tests.support.valkey import ValkeyServer
from tests.support.wait import wait_until

CHAT_RATE = 2.0
LONG_ANSWER = Ticket(500, 400)  # some twelve seconds: it does not end by itself before somebody has to withdraw it
TICKET_SECONDS = 2.5  # the most that a short one takes beside nineteen others
SLACK_SECONDS = 1.0  # for a machine that has other things to do
BACK_SECONDS = 30.0
TICKETS = 2_000  # more than any scene gets done


@pytest.fixture
def own_valkey(tmp_path: Path) -> Iterator[ValkeyServer]:
    """A server that may be stopped and killed."""
    folder = tmp_path / "valkey"
    folder.mkdir()
    server = ValkeyServer(folder)
    server.start()
    yield server
    server.kill()


@dataclass(frozen=True, slots=True)
class Scene:
    """A chat and a batch under way on one engine."""

    shared: SharedNight
    engine: EngineProcess
    valkey: ValkeyServer
    chat: Chat

    @property
    def floor(self) -> int:
        return self.shared.floor

    def wait_until_batch_is_above_its_floor(self) -> None:
        wait_until(lambda: batch_now(self.engine) > self.floor, "batch to be above its floor", BACK_SECONDS)

    def wait_until_batch_is_at_its_floor(self, seconds: float) -> None:
        wait_until(lambda: batch_now(self.engine) <= self.floor, "batch to be at its floor", seconds + SLACK_SECONDS)

    def held_by_batch(self) -> int:
        """Slots that batch holds and has not been asked back, by the ledger."""
        now = self.shared.snapshot()
        return now.batch.slots - now.reclaiming.slots

    def end(self) -> tuple[list[LogRow], list[Felt]]:
        """Everything comes to its end; what the engine and the people say of it."""
        self.chat.leave()
        self.shared.stop("worker")
        wait_until(lambda: self.engine.busy() == 0, "the engine to be idle")
        return self.engine.log(), self.chat.felt


@contextmanager
def under_way(
    night: Night, valkey: ValkeyServer, *, ticket: Ticket = SHORT, signals: tuple[str, ...] = ("ledger",)
) -> Iterator[Scene]:
    with EngineProcess(MIDDLE.profile, "--answer-tokens", str(ticket.output_tokens)) as engine:
        shared = SharedNight(night, MIDDLE, engine.base_url, valkey, signals=signals, ticket=ticket)
        shared.begin(TICKETS)
        door = shared.gateway if "ledger" in signals else engine.address
        with Chat(door, steady(CHAT_RATE)) as chat:
            scene = Scene(shared, engine, valkey, chat)
            wait_until(lambda: outcomes(chat.felt)[Outcome.ANSWERED] >= 2, "the chat to be under way")
            wait_until(lambda: batch_now(engine) >= 4 * scene.floor, "batch to be far above its floor", BACK_SECONDS)
            yield scene
        night.close()


def goes_on_for(seconds: float, since: float) -> None:
    """Let an outage last: nothing that could be waited for ends it."""
    time.sleep(max(0.0, since + seconds - time.time()))


def assert_chat_went_on(felt: list[Felt], begin: float, end: float, most_seconds: float = 4.0) -> None:
    """Somebody came meanwhile, and nobody's request failed, hung or was answered late."""
    meanwhile = [each for each in felt if begin < each.sent_at < end]
    before = [each for each in felt if each.sent_at < begin]
    for name, people in (("before", before), ("meanwhile", meanwhile)):
        seconds = ", ".join(f"{each:.2f}" for each in ttft_quantiles(people, (0.5, 0.95, 1.0)))
        print(f"chat {name}: TTFT p50, p95, most {seconds} s; {outcomes(people)}")
    assert ttft_quantiles(meanwhile, (1.0,))[0] < most_seconds
    assert [each for each in felt if each.outcome not in (Outcome.ANSWERED, Outcome.REFUSED)] == []


def assert_capacity_held(rows: list[LogRow], scene: Scene, since: float, back_at: float, in_flight: int) -> None:
    """From the outage on the engine never had more than its slots and what was in flight when it began."""
    batch, now = of_class(rows, "batch"), time.time()
    fell_at = next(at for at, held in at_engine(batch, since, now) if held <= scene.floor)
    rose_at = next(at for at, held in at_engine(batch, back_at, now) if at > fell_at and held > scene.floor)
    most = most_at_engine(rows, since, now)
    print(
        f"batch at its floor {fell_at - since:.1f} s after it began, above it {rose_at - back_at:.1f} s after its end"
    )
    print(f"at most {most} requests at the engine of {scene.shared.slots} slots; {in_flight} when it began")
    assert most <= scene.shared.slots + in_flight


@pytest.mark.long
def test_an_engine_that_stands_still(night: Night, own_valkey: ValkeyServer) -> None:
    with under_way(night, own_valkey, ticket=LONG_ANSWER) as scene:
        in_flight, stopped_at = scene.engine.busy(), time.time()
        scene.engine.pause()
        try:
            target_seconds = (
                MIDDLE.ttft_target_seconds + 1 / CHAT_RATE * 3
            )  # somebody has come, and has waited too long
            wait_until(
                lambda: scene.held_by_batch() <= scene.floor, "batch to be at its floor", target_seconds + LIMIT_SECONDS
            )
            print(f"asked back or ended {time.time() - stopped_at:.1f} s after the engine stood still")
            goes_on_for(10.0, stopped_at)
            assert scene.held_by_batch() <= scene.floor
        finally:
            scene.engine.resume()
        resumed_at = time.time()
        scene.wait_until_batch_is_at_its_floor(0.0)  # the engine learns of what was withdrawn when it runs again
        scene.wait_until_batch_is_above_its_floor()
        rows, felt = scene.end()
    batch = of_class(rows, "batch")
    # Until chat has been calm for a while, which it cannot be before the engine runs again.
    assert most_at_engine(batch, resumed_at + SLACK_SECONDS, resumed_at + CALM_SECONDS) <= scene.floor
    assert_chat_went_on(felt, stopped_at, resumed_at, most_seconds=15.0)
    assert_capacity_held(rows, scene, stopped_at, resumed_at, in_flight)


@pytest.mark.long
def test_metrics_that_are_gone_where_they_are_the_only_signal(night: Night, own_valkey: ValkeyServer) -> None:
    with under_way(night, own_valkey, ticket=LONG_ANSWER, signals=("engine",)) as scene:
        in_flight, gone_at = scene.engine.busy(), time.time()
        scene.engine.change_settings(metrics_gone=True)
        within_seconds = STALE_SECONDS + PERIOD_SECONDS + DRAINER_MS / 1000
        scene.wait_until_batch_is_at_its_floor(within_seconds)
        goes_on_for(within_seconds + SLACK_SECONDS + 3.0, gone_at)
        back_at = time.time()
        scene.engine.change_settings(metrics_gone=False)
        scene.wait_until_batch_is_above_its_floor()
        rows, felt = scene.end()
    assert most_at_engine(of_class(rows, "batch"), gone_at + within_seconds + SLACK_SECONDS, back_at) <= scene.floor
    assert_chat_went_on(felt, gone_at, back_at)
    assert_capacity_held(rows, scene, gone_at, back_at, in_flight)


@pytest.mark.long
def test_a_scheduler_that_was_killed(night: Night, own_valkey: ValkeyServer) -> None:
    with under_way(night, own_valkey) as scene:
        in_flight, killed_at = scene.engine.busy(), time.time()
        scene.shared.services["scheduler"].send(signal.SIGKILL)
        within_seconds = LIMIT_SECONDS + TICKET_SECONDS  # nobody withdraws what is in flight: it ends by itself
        scene.wait_until_batch_is_at_its_floor(within_seconds)
        goes_on_for(within_seconds + SLACK_SECONDS + 2.0, killed_at)
        back_at = time.time()
        scene.shared.start("scheduler")
        scene.wait_until_batch_is_above_its_floor()
        rows, felt = scene.end()
    batch = of_class(rows, "batch")
    assert 0 < most_at_engine(batch, killed_at + within_seconds + SLACK_SECONDS, back_at) <= scene.floor
    assert_chat_went_on(felt, killed_at, back_at)
    assert_capacity_held(rows, scene, killed_at, back_at, in_flight)


@pytest.mark.long
def test_a_redis_that_stands_still(night: Night, own_valkey: ValkeyServer) -> None:
    with under_way(night, own_valkey, ticket=LONG_ANSWER) as scene:
        assert own_valkey.process is not None
        in_flight, stopped_at = scene.engine.busy(), time.time()
        own_valkey.process.send_signal(signal.SIGSTOP)
        try:
            scene.wait_until_batch_is_at_its_floor(LEASE_SECONDS)
            goes_on_for(8.0, stopped_at)
        finally:
            own_valkey.process.send_signal(signal.SIGCONT)
        back_at = time.time()
        assert metric(scene.shared.gateway, "tickets_batch_gateway_admitted_open_total") > 0
        scene.wait_until_batch_is_above_its_floor()
        assert http(scene.shared.gateway, "GET", "/healthz")[1]["pools"]["gpu"]["redis"] == "ok"
        rows, felt = scene.end()
    batch = of_class(rows, "batch")
    assert [row for row in batch if stopped_at + SLACK_SECONDS / 2 < row.arrived_at < back_at] == []  # nobody let it in
    assert most_at_engine(batch, stopped_at + LEASE_SECONDS + SLACK_SECONDS, back_at) <= scene.floor
    assert_chat_went_on(felt, stopped_at, back_at)
    assert_capacity_held(rows, scene, stopped_at, back_at, in_flight)


@pytest.mark.long
def test_a_redis_that_comes_back_empty(night: Night, own_valkey: ValkeyServer) -> None:
    with under_way(night, own_valkey) as scene:
        in_flight, killed_at = scene.engine.busy(), time.time()
        own_valkey.kill()
        own_valkey.start()
        back_at = time.time()
        scene.wait_until_batch_is_at_its_floor(LEASE_SECONDS)
        scene.wait_until_batch_is_above_its_floor()
        rows, felt = scene.end()
    batch = of_class(rows, "batch")
    # Until one lease has passed the new ledger lets nothing in over the floor; what was in flight ends meanwhile.
    assert most_at_engine(batch, killed_at + TICKET_SECONDS + SLACK_SECONDS, killed_at + LEASE_SECONDS) <= scene.floor
    assert_chat_went_on(felt, killed_at, back_at + LEASE_SECONDS)
    assert_capacity_held(rows, scene, killed_at, back_at, in_flight)
