"""What a run left behind: in the store, at the engine, with the people who chatted, and in the ledger."""

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from sqlalchemy import func, select

from jobs.states import BatchState, JobState
from jobs.store.database import Database
from jobs.tables import attempts, batches, jobs, results
from scheduler.snapshot import Snapshot
from tests.chaos.plan import Fault, Plan
from tests.engine.log import LogRow
from tests.support.chat import Felt
from tests.support.store import assert_consistent


@dataclass(frozen=True, slots=True)
class Incident:
    """A fault as it happened, in seconds since the Unix epoch; `over_at`: healed, and its part is there again."""

    fault: Fault
    began_at: float
    over_at: float

    def __str__(self) -> str:
        return f"{self.fault.name} ({self.began_at:.2f} to {self.over_at:.2f})"


@dataclass(frozen=True, slots=True)
class JobLeft:
    """One ticket as the store has it."""

    custom_id: str
    state: JobState
    error: str | None
    finished_at: float | None
    labels: tuple[str, ...]  # of every result that it has: one, or none
    symptoms: tuple[str | None, ...]  # of every attempt in their order; None: answered


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that the judge may look at."""

    plan: Plan
    tickets: dict[str, str]  # texts as they were sent, by id
    batch_state: BatchState
    jobs: tuple[JobLeft, ...]
    inconsistency: str | None  # between the store's counters and its rows
    engine: tuple[LogRow, ...]
    chat: tuple[Felt, ...]
    permits: Snapshot
    incidents: tuple[Incident, ...]
    tracebacks: tuple[str, ...] = ()  # what no part expected, from their logs
    ended: tuple[str, ...] = ()  # parts that ended by themselves and were started again

    def changed(self, **values: Any) -> "Evidence":
        """Other evidence, for what a judge must find."""
        return replace(self, **values)


def jobs_left(db: Database, batch_id: str) -> list[JobLeft]:
    """Every ticket of a batch."""
    labels: dict[int, list[str]] = {}
    symptoms: dict[int, list[str | None]] = {}
    of_batch = select(jobs.c.id).where(jobs.c.batch_id == batch_id)
    with db.read() as connection:
        for job_id, label in connection.execute(
            select(results.c.job_id, results.c.label).where(
                results.c.job_id.in_(of_batch), results.c.label.is_not(None)
            )
        ):
            labels.setdefault(job_id, []).append(label)
        made = select(attempts.c.job_id, attempts.c.symptom).where(attempts.c.job_id.in_(of_batch))
        for job_id, symptom in connection.execute(made.order_by(attempts.c.job_id, attempts.c.number)):
            symptoms.setdefault(job_id, []).append(symptom)
        rows = connection.execute(select(jobs).where(jobs.c.batch_id == batch_id).order_by(jobs.c.id)).all()
    return [
        JobLeft(
            row.custom_id,
            JobState(row.state),
            row.error,
            _seconds(row.finished_at),
            tuple(labels.get(row.id, ())),
            tuple(symptoms.get(row.id, ())),
        )
        for row in rows
    ]


def batch_state(db: Database, batch_id: str) -> BatchState:
    with db.read() as connection:
        return BatchState(connection.execute(select(batches.c.state).where(batches.c.id == batch_id)).scalar_one())


def done(db: Database, batch_id: str) -> int:
    """Tickets that have ended."""
    final = [state.value for state in JobState if state.is_final]
    with db.read() as connection:
        counted = select(func.count()).where(jobs.c.batch_id == batch_id, jobs.c.state.in_(final))
        return int(connection.execute(counted).scalar_one())


def inconsistency(db: Database) -> str | None:
    """What the store's counters and rows disagree about."""
    try:
        assert_consistent(db)
    except AssertionError as error:
        return str(error) or "the store is not consistent"
    return None


def _seconds(instant: datetime | None) -> float | None:
    return None if instant is None else instant.timestamp()
