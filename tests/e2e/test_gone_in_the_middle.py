"""Redis or the database goes while services of one's own work on a batch: the work rests and goes on by itself."""

from collections.abc import Iterator

import pytest

from tests.engine.process import EngineProcess
from tests.support.command import Command
from tests.support.databases import PostgreSQL
from tests.support.night import Night
from tests.support.promise import CHAT_SLOTS, SLOTS, assert_kept, most_repeated
from tests.support.valkey import ValkeyServer
from tests.support.wait import wait_until

pytestmark = [pytest.mark.long, pytest.mark.timeout(180)]

TICKETS = 400


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


def test_redis_goes_and_comes_back_empty(night: Night, steady_engine: EngineProcess, own_valkey: ValkeyServer) -> None:
    engine = steady_engine
    night.configure(engine.base_url, slots=SLOTS, chat=CHAT_SLOTS, redis_url=own_valkey.url)
    tickets, command, services = at_work(night)
    night.wait_until_done(60)
    own_valkey.kill()
    wait_until(lambda: not engine.busy(), "the engine to be left alone", 20)
    wait_until(lambda: "Redis does not answer" in command.err, "the waiting submit to say why", 20)
    asked = len(engine.log())
    shown = night.json("status", "latest")
    assert (shown["state"], shown["limit"]) == ("running", None)
    assert len(engine.log()) == asked
    assert shown["request_counts"]["succeeded"] < TICKETS
    own_valkey.start()
    assert command.wait(90) == 0, command.err
    assert [service.code for service in services] == [None, None], [service.err for service in services]
    assert_kept(night, tickets, engine, 0)


def test_the_database_goes_and_comes_back(
    night: Night, steady_engine: EngineProcess, own_valkey: ValkeyServer, postgresql: PostgreSQL, postgresql_url: str
) -> None:
    engine = steady_engine
    night.configure(
        engine.base_url, slots=SLOTS, chat=CHAT_SLOTS, redis_url=own_valkey.url, database_url=postgresql_url
    )
    tickets, command, services = at_work(night)
    night.wait_until_done(60)
    postgresql.stop()
    try:
        wait_until(lambda: not engine.busy(), "the engine to be left alone", 20)
        wait_until(lambda: "cannot use the database" in command.err, "the waiting submit to say why", 20)
    finally:
        postgresql.start()
    assert command.wait(90) == 0, command.err
    assert [service.code for service in services] == [None, None], [service.err for service in services]
    assert_kept(night, tickets, engine, most_repeated(workers_killed=1))


def test_the_database_file_is_deleted(night: Night, steady_engine: EngineProcess) -> None:
    """What has it open goes on writing to it for ever: whoever waits must hear that nobody will read that."""
    night.configure(steady_engine.base_url, slots=SLOTS, chat=CHAT_SLOTS)
    night.tickets(f"Where is parcel number {number}?" for number in range(TICKETS))
    command = night.start_submit_and_wait()
    night.wait_until_done(30)
    for file in night.home.glob("tickets-batch.db*"):
        file.unlink()
    assert command.wait(60) == 1
    assert command.talk[-1].startswith(f"tickets-batch: the database file {night.home.absolute()}/tickets-batch.db is ")
    assert "put it back, or a backup of it, and submit --wait again; without one, that begins anew" in command.talk[-1]
    assert "is saved" not in command.err
    assert night.processes() == []
