"""What every part of a night stands on: real servers, the model beside them, and the processes that are at work."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

from sqlalchemy import select

from jobs.job import Finish, Job
from jobs.outcomes import Symptom
from jobs.retry import RetryPolicy, decide
from jobs.states import BatchState
from jobs.store import finishes
from jobs.store.database import Database
from jobs.tables import jobs, metadata
from scheduler.journal import Journal
from scheduler.permit import Ask, Permit
from tests.model.permits import START_MS, Permits
from tests.model.processes import Chat, Queue, Scheduler, Worker
from tests.model.reference import KnownBatch, KnownJob, Reference
from tests.model.watch import Watch
from tests.support.stepping import World
from tests.support.store import attempt, submit, ticket
from tests.support.valkey import ValkeyServer

LEASE_SECONDS = 15.0
POLICY = RetryPolicy(attempts=3)
WORKERS, SCHEDULERS = 3, 2

T = TypeVar("T")


def nth(things: Sequence[T], which: int) -> T | None:
    """One of them, the youngest first; None where there is none."""
    return things[-1 - which % len(things)] if things else None


def answer_of(job: Job) -> str:
    """What the model says of this ticket when it is asked under this claim."""
    return f"{job.custom_id} under {job.lease_token[:12]}"


def ask_of(job: Job) -> Ask:
    """Tickets of several sizes, some of whose ends can be foreseen."""
    number = int(job.custom_id.removeprefix("t-"))
    return Ask(100 + 300 * (number % 3), 100, expected_ms=400 * (number % 2))


def finish_of(job: Job, symptom: Symptom | None) -> Finish:
    """What a worker makes of a call that ended so."""
    made = attempt(symptom, None if symptom else answer_of(job))
    outcome = decide(made, job=job, policy=POLICY, endpoint_failing=False, jitter=lambda: 0.5)
    return Finish(job, outcome, made)


@dataclass(frozen=True, slots=True)
class Ghost:
    """What a process has let go of, or was killed with, and may yet come through from it."""

    job: Job
    permit: Permit | None = None


class House:
    """Everything real, everything known of it, and who is at work."""

    def __init__(self, database_url: str, server: ValkeyServer, runner: asyncio.Runner) -> None:
        self._url = database_url
        self.world = World()
        self.permits = Permits(server, runner)
        self._databases: list[Database] = []
        self._processes = 0
        self.retried: set[int] = set()
        self.highest_epoch = 0  # that the ledger has seen since it began
        self.has_stepped = False
        self.reference = Reference()
        self.queue = Queue()
        self.ghosts: list[Ghost] = []
        self._empty()
        self.person = self._database()  # their command, and whatever comes late from processes that are no more
        self.late = self.permits.connect()
        self.watch = Watch(self._database())
        self.chat = Chat(self.permits.connect())
        self.workers = [self.new_worker(n) for n in range(WORKERS)]
        self.schedulers = [self.new_scheduler(n) for n in range(SCHEDULERS)]

    def submit(self, sizes: Sequence[int], deadlines_seconds: Sequence[float | None]) -> None:
        """One batch of each size."""
        for n, (size, seconds) in enumerate(zip(sizes, deadlines_seconds, strict=True)):
            deadline = None if seconds is None else self.person.now() + timedelta(seconds=seconds)
            rows = [ticket(number, f"{number} of {n}", priority=number % 2) for number in range(size)]
            done = submit(self.person, rows, source_key=f"source {n}", deadline_at=deadline)
            self.reference.batches[done.batch_id] = KnownBatch(deadline)
            self.pass_seconds(0.001)  # of two with one deadline the older goes first
        with self.person.read() as connection:
            for row in connection.execute(select(jobs)):
                self.reference.jobs[row.id] = KnownJob(row.batch_id, row.priority)
        self.check()

    def check(self) -> None:
        """Everything is as the model says."""
        self.watch.check(self.reference, self.retried)
        self.retried.clear()
        self.permits.check()

    def close(self) -> None:
        """Close every connection."""
        for db in self._databases:
            db.dispose()
        self.permits.close()

    # --- time and faults

    def pass_seconds(self, seconds: float) -> None:
        self.world.pass_seconds(seconds)
        self.permits.set_clock(START_MS + round((self.world.seconds - 1_000) * 1000))

    def step_clock(self, seconds: float) -> None:
        """The database's clock is set; its processes notice one after the other."""
        self.has_stepped = True
        self.world.step(seconds)

    def wipe_ledger(self) -> None:
        self.permits.wipe()
        self.highest_epoch = 0

    # --- for the parts

    def write_finishes(self, db: Database, group: Sequence[Finish]) -> None:
        expected = self.reference.finish(group, db.now(), db.at_least())
        assert finishes.write(db, group) == expected

    def known(self, batch_id: str) -> tuple[BatchState, str | None]:
        batch = self.reference.batches[batch_id]
        return batch.state, batch.blocked

    def batch_id(self, which: int) -> str:
        ids = list(self.reference.batches)
        return ids[which % len(ids)]

    def _database(self) -> Database:
        """A connection pool of its own, with a clock of its own, as a process has them."""
        self._databases.append(Database.open(self._url, self.world.clock()))
        return self._databases[-1]

    def new_worker(self, n: int) -> Worker:
        self._processes += 1
        return Worker(f"worker {n} ({self._processes})", self._database(), self.permits.connect())

    def new_scheduler(self, n: int) -> Scheduler:
        self._processes += 1
        db = self._database()
        journal = Journal(db, self.world.monotonic)
        return Scheduler(f"scheduler {n} ({self._processes})", db, self.permits.connect(), journal)

    def _empty(self) -> None:
        db = self._database()
        with db.begin() as connection:
            for table in reversed(metadata.sorted_tables):
                connection.execute(table.delete())
