"""What the processes of a night remember: workers with jobs and permits, schedulers with an epoch, chat with permits.

They do nothing by themselves. A process that is given no step stands still, as if it had been stopped: what it then
does late, under an old lease, an old permit or an old epoch, is what a zombie does.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from jobs.job import Finish, Job
from jobs.outcomes import Symptom
from jobs.states import BatchState
from jobs.store.batches import BatchWork
from jobs.store.database import Database
from scheduler.dispatch import Task
from scheduler.endings import Endings
from scheduler.journal import Journal
from scheduler.ledger import Ledger
from scheduler.permit import Permit


@dataclass(slots=True)
class Flight:
    """A job that has its permit, and is at the engine."""

    job: Job
    permit: Permit
    has_first_token: bool = False
    withdrawn_for: Symptom | None = None
    is_lost: bool = False

    def withdraw(self, symptom: Symptom) -> None:
        """It is to end; the first reason stands."""
        self.withdrawn_for = self.withdrawn_for or symptom


@dataclass(slots=True)
class Worker:
    """One worker process."""

    name: str
    db: Database
    ledger: Ledger
    batch: BatchWork | None = None  # as it was when we looked
    waiting: list[Job] = field(default_factory=list)
    flights: list[Flight] = field(default_factory=list)
    unwritten: list[Finish] = field(default_factory=list)

    @property
    def held(self) -> list[Job]:
        """Every job whose lease it keeps alive."""
        return [
            *self.waiting,
            *(flight.job for flight in self.flights),
            *(finish.job for finish in self.unwritten),
        ]

    def lose(self, jobs: Collection[Job]) -> None:
        """These are another's: nothing is begun and nothing is written of them."""
        self.waiting = [job for job in self.waiting if job not in jobs]
        for flight in self.flights:
            if flight.job in jobs:
                flight.is_lost = True
                flight.withdraw(Symptom.WITHDRAWN)

    def goes_on(self) -> bool:
        """Whether, as far as it knows, its batch has work to be done now."""
        batch = self.batch
        is_late = batch is not None and batch.deadline_at is not None and batch.deadline_at <= self.db.now()
        return batch is not None and batch.state is BatchState.RUNNING and not is_late


@dataclass(slots=True)
class Scheduler:
    """One scheduler process; `epoch` is under which it believes to lead."""

    name: str
    db: Database
    ledger: Ledger
    journal: Journal
    epoch: int | None = None
    endings: Endings | None = None
    told: list[Mapping[str, Any]] = field(default_factory=list)


@dataclass(slots=True)
class Chat:
    """One gateway with the chat requests that it has admitted."""

    ledger: Ledger
    permits: list[Permit] = field(default_factory=list)


@dataclass(slots=True)
class Queue:
    """The broker: tasks that were published and not yet taken."""

    tasks: list[Task] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.tasks)

    def publish(self, task: Task) -> None:
        self.tasks.append(task)
