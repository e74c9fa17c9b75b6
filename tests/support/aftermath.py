"""What a batch leaves behind: in the store for every ticket, and in the engine's log."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import select

from jobs.store import batches, results
from jobs.store.batches import Batch
from jobs.store.database import Database
from jobs.store.results import ResultRow
from jobs.tables import attempts, jobs
from jobs.tables import results as results_table
from tests.engine.answer import ticket_hash
from tests.engine.process import EngineHandle
from tests.support.store import assert_consistent


@dataclass(frozen=True, slots=True)
class Aftermath:
    """One batch; lists and dicts are in the order of the tickets, or by their ids."""

    batch: Batch
    rows: dict[str, ResultRow]
    symptoms: dict[str, list[str | None]]  # of every attempt, in their order; None: it was answered
    raw: dict[str, str | None]

    @property
    def states(self) -> dict[str, int]:
        return Counter(row.state.value for row in self.rows.values())

    @property
    def spent(self) -> list[int]:
        return [row.attempts for row in self.rows.values()]


def aftermath(db: Database, batch_id: str) -> Aftermath:
    """What the store has of a batch now; fails where its counters are not what a recount gives."""
    assert_consistent(db)
    said = (
        select(jobs.c.custom_id, results_table.c.raw)
        .join(results_table, results_table.c.job_id == jobs.c.id)
        .where(jobs.c.batch_id == batch_id)
    )
    with db.read() as connection:
        raw = {row.custom_id: row.raw for row in connection.execute(said)}
    rows = {row.custom_id: row for row in results.stream(db, batch_id)}
    return Aftermath(batches.get(db, batch_id), rows, symptoms(db, batch_id), raw)


def symptoms(db: Database, batch_id: str) -> dict[str, list[str | None]]:
    """What each attempt of each ticket showed so far, in the order in which they were made."""
    made = (
        select(jobs.c.custom_id, attempts.c.symptom)
        .join(attempts, attempts.c.job_id == jobs.c.id)
        .where(jobs.c.batch_id == batch_id)
        .order_by(jobs.c.id, attempts.c.number)
    )
    found: dict[str, list[str | None]] = {}
    with db.read() as connection:
        for custom_id, symptom in connection.execute(made):
            found.setdefault(custom_id, []).append(symptom)
    return found


def calls(engine: EngineHandle, bodies: Sequence[str]) -> list[int]:
    """How often the engine was called for each of these tickets."""
    made = Counter(row.ticket for row in engine.log())
    return [made[ticket_hash(body)] for body in bodies]


def answered(engine: EngineHandle, bodies: Sequence[str]) -> list[int]:
    """How often each of these tickets was answered in full: what was paid for."""
    paid = Counter(row.ticket for row in engine.log() if row.outcome == "ok")
    return [paid[ticket_hash(body)] for body in bodies]
