"""The deadline, with two hundred requests at the model: what is done stays, and everything has ended shortly after."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

import pytest
from sqlalchemy import func, select, update

from jobs.states import BatchState, JobState
from jobs.store import services
from jobs.tables import attempts, batches, jobs
from scheduler.simulation.engine.profile import EngineProfile
from tests.engine.process import EngineProcess
from tests.support.command import Command
from tests.support.night import Night, hash_as_sent
from tests.support.valkey import ValkeyServer
from tests.support.wait import wait_until

IN_FLIGHT = 200
SLOTS = 240  # some have always just ended, and their places are not yet taken
TICKETS = 700
GRACE_SECONDS = 1.5
GRACE = f"deadline_grace_seconds = {GRACE_SECONDS}\n"
PROMISED_SECONDS = 2.0  # after the grace, or after the scheduler's return
# About eight tokens of 0.6 s: what is begun in the last seconds would end well after the grace, some of it within.
SLOW = EngineProfile(
    slots=256,
    step_token_budget=1 << 20,
    step_base_seconds=0.6,
    prefill_token_seconds=0.0,
    decode_sequence_seconds=0.0,
    kv_capacity_tokens=1 << 30,
)


@pytest.fixture
def engine() -> Iterator[EngineProcess]:
    with EngineProcess(SLOW, "--answer-tokens", "8", "--answer-sigma", "0.25") as running:
        yield running


@dataclass
class Evening:
    """A night just before its deadline."""

    night: Night
    engine: EngineProcess
    tickets: dict[str, str]

    def batch_id(self) -> str:
        found = self.night.batch()
        assert found is not None
        return found.id

    def state(self) -> BatchState:
        found = self.night.batch()
        assert found is not None
        return found.state

    def wait_until_full(self) -> None:
        """Some tickets are done, and the model is full."""
        self.night.wait_until_done(50, 90)
        wait_until(lambda: self.engine.busy() == SLOTS, f"{SLOTS} requests in flight", 60)

    def end_in(self, seconds: float) -> datetime:
        """Move the deadline to so many seconds from now; a command line knows only minutes."""
        db = self.night.database()
        deadline = db.now() + timedelta(seconds=seconds)
        with db.begin() as connection:
            connection.execute(update(batches).values(deadline_at=deadline))
        return deadline

    def count(self, *states: JobState) -> int:
        with self.night.database().read() as connection:
            is_in = jobs.c.state.in_([state.value for state in states])
            return int(connection.execute(select(func.count()).select_from(jobs).where(is_in)).scalar_one())

    def last_finish(self) -> datetime:
        with self.night.database().read() as connection:
            last: datetime = connection.execute(select(func.max(jobs.c.finished_at))).scalar_one()
        return last

    def seconds_after_the_return(self) -> float:
        """When the last job was final, counted from the youngest scheduler's start."""
        back = max(each.started_at for each in services.alive(self.night.database(), "scheduler"))
        return (self.last_finish() - back).total_seconds()

    def hashes(self, state: str) -> Counter[str]:
        rows = self.night.results(self.batch_id())
        return Counter(hash_as_sent(self.tickets[name]) for name, row in rows.items() if row["state"] == state)

    def assert_ended_in_time(self, deadline: datetime) -> None:
        """By the engine's own log: nothing began after the deadline, nothing succeeded after the grace."""
        at, slack_seconds = deadline.timestamp(), 0.3  # for what is on its way between the two processes
        log = self.engine.log()
        late = [row for row in log if row.arrived_at > at + slack_seconds]
        assert late == [], f"{len(late)} requests began after the deadline"
        ok = [row for row in log if row.outcome == "ok"]
        last = max(row.ended_at or 0.0 for row in ok) - at
        assert last <= GRACE_SECONDS + slack_seconds
        at_once = sum(row.arrived_at <= at < (row.ended_at or at) for row in log)
        assert at_once >= IN_FLIGHT
        kept = self.hashes("succeeded")
        assert kept <= Counter(row.ticket for row in ok)
        lost = [(row.ended_at or 0.0) - at for row in ok if row.ticket not in kept]
        assert min(lost, default=GRACE_SECONDS) > GRACE_SECONDS - slack_seconds  # all that came in time is kept
        in_grace = sum(at < (row.ended_at or at) for row in ok)
        assert in_grace > 0
        print(f"{at_once} in flight at the deadline, {in_grace} answered in the grace, the last {last:+.2f} s after it")
        print(f"answers on their way when the grace was over: {len(lost)}")

    def assert_the_rest_has_expired(self) -> None:
        """Each ticket has its row, and those without an answer say why."""
        rows = self.night.results(self.batch_id())
        assert rows.keys() == self.tickets.keys()
        expired = [row for row in rows.values() if row["state"] == "expired"]
        assert len(expired) == len(rows) - sum(row["state"] == "succeeded" for row in rows.values()) > IN_FLIGHT // 2
        assert {row["error"] for row in expired} == {"deadline"}
        assert {row["label"] for row in expired} == {None}


@pytest.mark.long
def test_everything_has_ended_shortly_after_the_deadline_and_retry_finishes_the_rest(
    night: Night, engine: EngineProcess
) -> None:
    night.configure(engine.base_url, slots=SLOTS, more=GRACE)
    evening = Evening(night, engine, night.tickets(f"Where is parcel number {number}?" for number in range(TICKETS)))
    command = night.start_submit_and_wait()
    evening.wait_until_full()
    deadline = evening.end_in(1.5)

    assert command.wait(60) == 4, command.err
    assert night.processes() == []
    assert evening.count(JobState.PENDING, JobState.RUNNING) == 0
    after = (evening.last_finish() - deadline).total_seconds()
    print(f"\nthe last job was final {after:.2f} s after the deadline, with {GRACE_SECONDS:g} s of grace")
    assert after <= GRACE_SECONDS + PROMISED_SECONDS
    evening.assert_ended_in_time(deadline)
    evening.assert_the_rest_has_expired()

    expired, asked = evening.hashes("expired"), len(engine.log())
    engine.set_profile(step_base_seconds=0.0)
    assert f"{expired.total()} tickets back to work" in night.run("retry", "latest", "--deadline", "none", code=0).err
    shown = night.submit_and_wait()
    assert shown["request_counts"]["succeeded"] == TICKETS
    assert Counter(row.ticket for row in engine.log(asked)) == expired


class TestWithoutAScheduler:
    """The services run by themselves, so that nobody starts a scheduler again that is killed."""

    @pytest.fixture
    def evening(self, night: Night, engine: EngineProcess, valkey: ValkeyServer, postgresql_url: str) -> Evening:
        night.configure(engine.base_url, slots=SLOTS, redis_url=valkey.url, database_url=postgresql_url, more=GRACE)
        tickets = night.tickets(f"Where is parcel number {number}?" for number in range(TICKETS))
        return Evening(night, engine, tickets)

    def started(self, night: Night, verb: str) -> Command:
        command = night.start(verb)
        wait_until(lambda: services.alive(night.database(), verb, 5), f"the {verb}", 40)
        return command

    @pytest.mark.long
    def test_workers_hold_the_deadline_and_the_scheduler_does_the_rest_when_it_is_back(self, evening: Evening) -> None:
        night = evening.night
        self.started(night, "scheduler")
        self.started(night, "worker")
        waiting = night.start_submit_and_wait()
        evening.wait_until_full()
        night.kill("scheduler")
        deadline = evening.end_in(1.5)
        soon = GRACE_SECONDS + PROMISED_SECONDS

        wait_until(lambda: evening.count(JobState.RUNNING) == 0, "what was in flight to end", 30)
        after = (evening.last_finish() - deadline).total_seconds()
        assert after <= soon
        assert evening.count(JobState.PENDING) > 0  # nobody is there to expire them
        wait_until(
            lambda: night.database().now() > deadline + timedelta(seconds=6), "the lease of the killed to end", 30
        )
        night.start("scheduler")

        assert waiting.wait(60) == 4, waiting.err
        took = evening.seconds_after_the_return()
        print(f"\nin flight ended {after:.2f} s after the deadline, the rest {took:.2f} s after the scheduler's return")
        assert took <= PROMISED_SECONDS
        evening.assert_ended_in_time(deadline)
        evening.assert_the_rest_has_expired()

    def test_a_scheduler_that_starts_late_expires_before_anything_is_begun(self, evening: Evening) -> None:
        night = evening.night
        night.run("submit", "--all", code=1)  # saved, and nothing runs
        evening.end_in(-1)
        self.started(night, "worker")
        self.started(night, "scheduler")

        wait_until(lambda: evening.state() is BatchState.EXPIRED, "the batch to end", 30)
        assert evening.seconds_after_the_return() <= PROMISED_SECONDS
        assert evening.engine.log() == []
        with night.database().read() as connection:
            assert connection.execute(select(jobs.c.state, jobs.c.started_at).distinct()).all() == [("expired", None)]
            assert connection.execute(select(func.count()).select_from(attempts)).scalar_one() == 0
