"""Whatever is killed, nothing is lost, nothing stays behind, and little is paid for twice."""

import signal
from collections import Counter
from collections.abc import Iterator
from functools import partial

import pytest
from sqlalchemy import func, select

from jobs.tables import attempts
from tests.engine.process import EngineProcess
from tests.engine.profile import EngineProfile
from tests.support.night import Night, hash_as_sent, is_alive
from tests.support.wait import wait_until

SLOTS, CHAT_SLOTS = 20, 4
UNFLUSHED = 32  # results that a worker may have in hand and not yet in SQL: design section 1
ANSWER_TOKENS, STEP_SECONDS = 12, 0.02  # a ticket takes about a third of a second, beside fifteen others


@pytest.fixture
def engine() -> Iterator[EngineProcess]:
    profile = EngineProfile(slots=SLOTS, step_base_seconds=STEP_SECONDS)
    with EngineProcess(profile, "--answer-tokens", str(ANSWER_TOKENS)) as running:
        yield running


def most_repeated(workers_killed: int) -> int:
    """How many answers may be paid for twice: those in flight, and one unflushed write for each killed worker."""
    return SLOTS - CHAT_SLOTS + UNFLUSHED * workers_killed


def prepare(night: Night, engine: EngineProcess, count: int) -> dict[str, str]:
    night.configure(engine.base_url, slots=SLOTS, chat=CHAT_SLOTS)
    return night.tickets(f"Where is parcel number {number}?" for number in range(count))


def assert_complete(night: Night, tickets: dict[str, str], engine: EngineProcess, most_repeats: int) -> None:
    """Every ticket has its answer, committed once, and no more calls succeeded than the promise allows."""
    rows = night.results()
    assert {custom_id: row["label"] for custom_id, row in rows.items()} == night.expected(tickets)
    with night.database().read() as connection:
        committed = select(func.count()).select_from(attempts).where(attempts.c.label.is_not(None))
        assert connection.execute(committed).scalar_one() == len(tickets)
    answered = Counter(call.ticket for call in engine.log() if call.outcome == "ok")
    assert set(answered) == {hash_as_sent(body) for body in tickets.values()}
    repeated = answered.total() - len(tickets)
    print(f"\n{answered.total()} answers for {len(tickets)} tickets: {repeated} twice, promised at most {most_repeats}")
    assert repeated <= most_repeats


@pytest.mark.long
@pytest.mark.timeout(180)
def test_worker_scheduler_and_valkey_are_killed_during_one_night(night: Night, engine: EngineProcess) -> None:
    tickets = prepare(night, engine, 900)
    command = night.start_submit_and_wait()
    killed = []
    for done, verb in ((100, "worker"), (300, "scheduler"), (500, "valkey")):
        night.wait_until_done(done)
        killed.append(night.kill(verb))
        wait_until(partial(came_back, night, verb, killed[-1]), f"the {verb} to come back", 30)
    assert command.wait(120) == 0, command.err
    assert night.processes() == []
    for name in ("worker", "scheduler", "valkey"):
        assert f"{name}" in command.err
    assert command.err.count("was killed by SIGKILL, starting it again in") == 3
    assert_complete(night, tickets, engine, most_repeated(workers_killed=1))


def came_back(night: Night, verb: str, was: int) -> bool:
    running = {process.pid for process in night.processes(verb)}
    return was not in running and len(running) == (2 if verb == "worker" else 1)


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (signal.SIGKILL, -signal.SIGKILL),
        pytest.param(signal.SIGTERM, 143, marks=pytest.mark.long),
        pytest.param(signal.SIGINT, 130, marks=pytest.mark.long),
    ],
)
def test_submit_and_wait_is_ended_and_the_next_one_finishes(
    night: Night, engine: EngineProcess, number: signal.Signals, code: int
) -> None:
    tickets = prepare(night, engine, 200)
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
    assert_complete(night, tickets, engine, most_repeated(2) if number == signal.SIGKILL else 0)
