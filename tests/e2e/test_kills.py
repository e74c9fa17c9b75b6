"""Whatever is killed, nothing is lost, nothing stays behind, and little is paid for twice."""

import signal
from functools import partial

import pytest

from tests.engine.process import EngineProcess
from tests.support.night import Night, is_alive
from tests.support.promise import CHAT_SLOTS, SLOTS, assert_kept, most_repeated
from tests.support.wait import wait_until


def prepare(night: Night, engine: EngineProcess, count: int) -> dict[str, str]:
    night.configure(engine.base_url, slots=SLOTS, chat=CHAT_SLOTS)
    return night.tickets(f"Where is parcel number {number}?" for number in range(count))


@pytest.mark.long
@pytest.mark.timeout(180)
def test_worker_scheduler_and_valkey_are_killed_during_one_night(night: Night, steady_engine: EngineProcess) -> None:
    tickets = prepare(night, steady_engine, 900)
    command = night.start_submit_and_wait()
    for done, verb in ((100, "worker"), (300, "scheduler"), (500, "valkey")):
        night.wait_until_done(done)
        wait_until(partial(came_back, night, verb, night.kill(verb)), f"the {verb} to come back", 30)
    assert command.wait(120) == 0, command.err
    assert night.processes() == []
    news = [line for line in command.talk if "was killed by SIGKILL, starting it again in" in line]
    assert [line.partition(" ")[0].partition("-")[0] for line in news] == ["worker", "scheduler", "valkey"]
    assert_kept(night, tickets, steady_engine, most_repeated(workers_killed=1))


def came_back(night: Night, verb: str, was: int) -> bool:
    running = {process.pid for process in night.processes(verb)}
    return was not in running and len(running) == (2 if verb == "worker" else 1)


@pytest.mark.parametrize(
    ("number", "code"),
    [
        pytest.param(signal.SIGKILL, -signal.SIGKILL, marks=pytest.mark.long),
        pytest.param(signal.SIGTERM, 143, marks=pytest.mark.long),
        pytest.param(signal.SIGINT, 130, marks=pytest.mark.long),
    ],
)
def test_submit_and_wait_is_ended_and_the_next_one_finishes(
    night: Night, steady_engine: EngineProcess, number: signal.Signals, code: int
) -> None:
    tickets = prepare(night, steady_engine, 200)
    command = night.start_submit_and_wait()
    night.wait_until_done(40)
    before = night.processes()
    assert {len(night.processes(verb)) for verb in ("valkey", "scheduler")} == {1}
    assert len(night.processes("worker")) == 2
    command.send(number)
    assert command.wait(20) == code
    if number == signal.SIGKILL:  # it could not wait for its children: the kernel ends them
        wait_until(lambda: night.processes() == [], "everything that it had started to be gone", 5)
    assert night.processes() == []
    assert [process for process in before if is_alive(process)] == []
    left = night.batch()
    assert left is not None
    assert 40 <= left.succeeded < len(tickets)
    if number != signal.SIGKILL:
        assert f"{left.id} is saved: submit --wait again, and it goes on" in command.talk
        assert left.running == 0  # in good order, everything was written or put back
    shown = night.submit_and_wait()
    assert shown["batch_id"] == left.id
    assert shown["request_counts"]["succeeded"] == len(tickets)
    assert night.processes() == []
    assert_kept(night, tickets, steady_engine, most_repeated(2) if number == signal.SIGKILL else 0)
