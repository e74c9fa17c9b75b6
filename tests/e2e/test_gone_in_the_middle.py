"""Redis or the database goes while services of one's own work on a batch: the work rests and goes on by itself."""

from collections import Counter
from collections.abc import Iterator

import pytest

from tests.engine.process import EngineProcess
from tests.engine.profile import EngineProfile
from tests.support.command import Command
from tests.support.databases import PostgreSQL
from tests.support.night import Night, hash_as_sent
from tests.support.valkey import ValkeyServer
from tests.support.wait import wait_until

pytestmark = [pytest.mark.long, pytest.mark.timeout(180)]

TICKETS, SLOTS, CHAT_SLOTS = 400, 20, 4
UNFLUSHED = 32  # results that a worker may have in hand and not yet in SQL


@pytest.fixture
def engine() -> Iterator[EngineProcess]:
    with EngineProcess(EngineProfile(slots=SLOTS, step_base_seconds=0.02), "--answer-tokens", "12") as running:
        yield running


@pytest.fixture
def own_valkey(night: Night) -> Iterator[ValkeyServer]:
    """A server that this test may kill."""
    server = ValkeyServer(night.folder)
    server.start()
    yield server
    server.kill()


def at_work(night: Night) -> tuple[dict[str, str], Command, list[Command]]:
    """The tickets, a submit that waits for them, and a scheduler and a worker that work on them."""
    tickets = night.tickets(f"Where is parcel number {number}?" for number in range(TICKETS))
    services = [night.start("scheduler"), night.start("worker", "--processes", "1")]
    return tickets, night.start_submit_and_wait(), services


def rests(engine: EngineProcess) -> bool:
    """True when the engine has nothing to do."""
    state = engine.state()
    return not state["running"] and not state["waiting"]


def assert_complete(night: Night, tickets: dict[str, str], engine: EngineProcess, most_repeats: int) -> None:
    rows = night.results()
    assert {custom_id: row["label"] for custom_id, row in rows.items()} == night.expected(tickets)
    answered = Counter(call.ticket for call in engine.log() if call.outcome == "ok")
    assert set(answered) == {hash_as_sent(body) for body in tickets.values()}
    print(f"\n{answered.total() - len(tickets)} of {len(tickets)} answers paid for twice, at most {most_repeats}")
    assert answered.total() - len(tickets) <= most_repeats


def test_redis_goes_and_comes_back_empty(night: Night, engine: EngineProcess, own_valkey: ValkeyServer) -> None:
    night.configure(engine.base_url, slots=SLOTS, chat=CHAT_SLOTS, redis_url=own_valkey.url)
    tickets, command, services = at_work(night)
    night.wait_until_done(60)
    own_valkey.kill()
    wait_until(lambda: rests(engine), "the engine to be left alone", 20)
    wait_until(lambda: "Redis does not answer" in command.err, "the waiting submit to say why", 20)
    asked = len(engine.log())
    shown = night.json("status", "latest")
    assert (shown["state"], shown["limit"]) == ("running", None)
    assert len(engine.log()) == asked
    assert shown["request_counts"]["succeeded"] < TICKETS
    own_valkey.start()
    assert command.wait(90) == 0, command.err
    assert [service.code for service in services] == [None, None], [service.err for service in services]
    assert_complete(night, tickets, engine, most_repeats=0)


def test_the_database_goes_and_comes_back(
    night: Night, engine: EngineProcess, own_valkey: ValkeyServer, postgresql: PostgreSQL, postgresql_url: str
) -> None:
    night.configure(
        engine.base_url, slots=SLOTS, chat=CHAT_SLOTS, redis_url=own_valkey.url, database_url=postgresql_url
    )
    tickets, command, services = at_work(night)
    night.wait_until_done(60)
    postgresql.stop()
    try:
        wait_until(lambda: rests(engine), "the engine to be left alone", 20)
        wait_until(lambda: "cannot use the database" in command.err, "the waiting submit to say why", 20)
    finally:
        postgresql.start()
    assert command.wait(90) == 0, command.err
    assert [service.code for service in services] == [None, None], [service.err for service in services]
    assert_complete(night, tickets, engine, most_repeats=SLOTS - CHAT_SLOTS + UNFLUSHED)
