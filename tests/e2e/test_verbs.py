"""Every verb on running services: what it does to a batch at work, and how a waiting submit then ends."""

import signal
from collections.abc import Iterator
from datetime import timedelta

import pytest
from sqlalchemy import update

from jobs.store import batches, services
from jobs.store.batches import Batch
from jobs.tables import batches as batches_table
from scheduler.simulation.engine.profile import EngineProfile
from tests.engine.process import EngineThread
from tests.support.command import Command
from tests.support.night import Night
from tests.support.patience import IMPATIENT
from tests.support.redis_watch import RedisWatch, without_ttl
from tests.support.valkey import ValkeyServer
from tests.support.wait import wait_until


class Site:
    """A scheduler and a worker at work on one database, and the engine that they call."""

    def __init__(self, night: Night, engine: EngineThread, valkey: ValkeyServer) -> None:
        self.night = night
        self.engine = engine
        self.valkey = valkey

    def submit(self, *bodies: str) -> str:
        """A new batch of these tickets, taken up by the services; its id."""
        return str(self.night.run("submit", "--all", "--input", self.write(bodies), code=0).out.strip())

    def submit_and_wait(self, *bodies: str) -> Command:
        """The same with --wait, while it runs."""
        return self.night.start("submit", "--all", "--input", self.write(bodies), "--wait", "--json")

    def write(self, bodies: tuple[str, ...], name: str | None = None) -> str:
        """A file of these tickets; in no two files they have the same text, so that no answer is reused."""
        name = name or f"tickets-{len(list(self.night.folder.glob('tickets-*.csv')))}.csv"
        self.night.tickets((f"{body} ({name})" for body in bodies), name)
        return name

    def name_of(self, batch: Batch) -> str:
        """The file that a batch was made from."""
        return batch.source.partition(" ")[0]

    def wait_until_called(self, count: int = 1) -> None:
        """Wait until the frozen engine holds so many calls."""
        wait_until(lambda: self.engine.busy() >= count, f"{count} calls in the engine", 20)

    def counts(self, batch_id: str) -> dict[str, int]:
        batch = batches.get(self.night.database(), batch_id)
        return {name: getattr(batch, name) for name in ("pending", "running", "succeeded", "failed", "cancelled")}

    def labels(self, batch_id: str) -> list[str | None]:
        return [row["label"] for row in self.night.results(batch_id).values()]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("site")
    valkey = ValkeyServer(folder)
    valkey.start()
    night = Night(folder)
    with EngineThread(EngineProfile.instant()) as engine:
        night.configure(engine.base_url, redis_url=valkey.url)
        night.start("scheduler")
        night.start("worker", "--processes", "1")
        wait_until(lambda: is_complete(night), "a scheduler and a worker", 30)
        yield Site(night, engine, valkey)
        night.close()
    valkey.kill()


@pytest.fixture
def site(running: Site) -> Site:
    running.engine.reset()
    return running


def is_complete(night: Night) -> bool:
    if not (night.home / "tickets-batch.db").exists():
        return False
    try:
        return {service.role for service in services.alive(night.database())} == {"scheduler", "worker"}
    except Exception:  # the tables are just being made
        return False


def let_deadline_pass(night: Night, batch_id: str) -> None:
    """Set the deadline of a batch at work to this moment."""
    db = night.database()
    with db.begin() as connection:
        soon = db.now() - timedelta(seconds=3)
        connection.execute(update(batches_table).where(batches_table.c.id == batch_id).values(deadline_at=soon))


@pytest.mark.long
class TestHowAWaitingSubmitEnds:
    def test_3_some_failed_and_retry_finishes_them(self, site: Site) -> None:
        command = site.submit_and_wait("Where is it?", "[[fault:content_filter times=1]]", "Paid twice")
        assert command.wait() == 3, command.err
        batch_id = site.night.batch_id(command)
        assert site.counts(batch_id) == {"pending": 0, "running": 0, "succeeded": 2, "failed": 1, "cancelled": 0}
        failed = [row for row in site.night.results(batch_id).values() if row["state"] == "failed"]
        assert [row["custom_id"] for row in failed] == ["T000002"]
        assert failed[0]["error"]
        assert "1 ticket back to work" in site.night.run("retry", batch_id, code=0).err
        wait_until(lambda: site.counts(batch_id)["succeeded"] == 3, "the failed one to succeed", 20)
        assert site.night.json("status", batch_id)["state"] == "completed"

    def test_4_the_deadline_passed_and_retry_finishes_the_rest(self, site: Site) -> None:
        site.engine.freeze()
        command = site.submit_and_wait(*(f"Parcel {number}" for number in range(30)))
        site.wait_until_called(16)
        (batch,) = batches.newest_first(site.night.database(), 1)
        let_deadline_pass(site.night, batch.id)
        assert command.wait() == 4, command.err
        assert {row["state"] for row in site.night.results(batch.id).values()} == {"expired"}
        site.engine.thaw()
        site.night.run("retry", batch.id, "--deadline", "none", code=0)
        wait_until(lambda: site.counts(batch.id)["succeeded"] == 30, "the expired ones to succeed", 20)

    def test_5_cancelled_and_what_was_in_flight_is_withdrawn(self, site: Site) -> None:
        site.engine.freeze()
        command = site.submit_and_wait(*(f"Parcel {number}" for number in range(30)))
        site.wait_until_called(16)
        (batch,) = batches.newest_first(site.night.database(), 1)
        cancelled = site.night.run("cancel", batch.id, code=0)
        assert f"{batch.id} is cancelling: 0 of 30 tickets done, taking back" in cancelled.err
        assert command.wait() == 5, command.err
        site.engine.thaw()
        rows = site.night.results(batch.id)
        assert (len(rows), {row["state"] for row in rows.values()}) == (30, {"cancelled"})
        wait_until(lambda: site.engine.busy() == 0, "the engine to be free")
        assert {call.outcome for call in site.engine.log()} == {"aborted"}
        name = site.name_of(batch)
        again = site.night.run("submit", "--all", "--input", name, "--wait", code=1)
        assert again.talk[-1].endswith(f"{batch.id} was cancelled and stays closed: add --new to make another one")

    def test_6_blocked_and_it_goes_on_by_itself_when_it_works(self, site: Site) -> None:
        site.engine.change_settings(api_key="changed since yesterday")
        name = site.write(("Where is it?", "Paid twice"))
        command = site.night.run("submit", "--all", "--input", name, "--wait", "--json", program=IMPATIENT, code=6)
        batch_id = site.night.batch_id(command)
        assert "blocked: " in command.err
        assert site.night.json("status", batch_id)["blocked"]
        counts = site.counts(batch_id)
        assert counts["pending"] + counts["running"] == 2  # one of them may be out, as a probe
        site.engine.change_settings(api_key=None)
        wait_until(lambda: site.counts(batch_id)["succeeded"] == 2, "the next probe and the rest", 30)
        shown = site.night.json("status", batch_id)
        assert (shown["blocked"], shown["state"]) == (None, "completed")
        assert {row["attempts"] for row in site.night.results(batch_id).values()} == {1}


@pytest.mark.long
class TestABatchAtWork:
    def test_pause_rests_and_resume_goes_on(self, site: Site) -> None:
        site.engine.freeze()
        paused = site.submit(*(f"Parcel {number}" for number in range(40)))
        site.wait_until_called(16)
        assert "is paused" in site.night.run("pause", paused, code=0).err
        wait_until(lambda: site.counts(paused)["running"] <= 16, "what had not begun to go back")
        site.engine.thaw()
        wait_until(lambda: site.counts(paused)["running"] == 0, "what was in flight to end or go back")
        rest = site.counts(paused)
        assert rest["pending"] >= 40 - 16
        other = site.submit("another batch goes on meanwhile")
        wait_until(lambda: site.counts(other)["succeeded"] == 1, "the other batch", 20)
        assert site.counts(paused) == rest
        site.night.run("resume", paused, code=0)
        wait_until(lambda: site.counts(paused)["succeeded"] == 40, "the resumed batch", 20)
        assert None not in site.labels(paused)

    def test_status_follows_and_lists(self, site: Site) -> None:
        site.engine.freeze()
        batch_id = site.submit("Where is it?")
        site.wait_until_called()
        shown = site.night.json("status", batch_id)
        assert shown["in_flight"]["batch"]["slots"] == 1
        assert shown["limit"]["slots"] == 16
        follower = site.night.start("status", batch_id, "--follow")
        wait_until(lambda: "0 of 1 done" in follower.err, "the follower to see the batch", 20)
        site.engine.thaw()
        assert follower.wait() == 0, follower.err
        assert follower.out.startswith(f"{batch_id}: completed")
        assert batch_id in [batch["batch_id"] for batch in site.night.json("status")["data"]]

    def test_redis_holds_nothing_of_it_afterwards(self, site: Site) -> None:
        name = site.write(("Where is the zanzibar?", "Paid for the zanzibar twice"))
        with RedisWatch(site.valkey.url) as watch:
            site.night.run("submit", "--all", "--input", name, "--wait", code=0)
            keys = watch.keys()
        assert "tickets-batch:{gpu}:epoch" in {key.name for key in keys}
        assert without_ttl(keys) == []
        assert [key.name for key in keys if b"zanzibar" in key.content] == []

    def test_a_second_submit_adds_what_is_new(self, site: Site) -> None:
        name = site.write(("Where is it?", "Paid twice"))
        first = site.night.json("submit", "--all", "--input", name, "--wait")
        assert first["request_counts"]["succeeded"] == 2
        site.write(("Where is it?", "Paid twice", "Cannot log in"), name)
        again = site.night.json("submit", "--all", "--input", name, "--wait")
        assert again["batch_id"] == first["batch_id"]
        assert again["request_counts"]["succeeded"] == 3
        assert len(site.engine.log()) == 3


class TestWithoutServices:
    def test_submit_saves_and_says_so_and_up_does_the_work(self, night: Night) -> None:
        with EngineThread(EngineProfile.instant()) as engine:
            night.configure(engine.base_url, processes=1)
            tickets = night.tickets(["Where is it?", "Paid twice", "Cannot log in"])
            saved = night.run("submit", "--all", code=1)
            batch_id = saved.out.strip()
            assert saved.talk[-1].endswith(
                f"{batch_id} is saved, but nothing is running: start tickets-batch up, or submit again with --wait"
            )
            up = night.start("up")
            night.wait_until_done(3, 30)
            assert night.run("submit", "--all", code=0).out.strip() == batch_id
            up.send(signal.SIGTERM)
            assert up.wait(20) == 0, up.err
            assert night.processes() == []
            assert {custom_id: row["label"] for custom_id, row in night.results(batch_id).items()} == night.expected(
                tickets
            )
