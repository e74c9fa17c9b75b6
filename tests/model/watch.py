"""What is in the database, read with no help of the store, against the model after each step."""

from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Row, func, select

from jobs.outcomes import Succeeded
from jobs.states import BatchState, JobState
from jobs.store.database import Database
from jobs.tables import attempts, batches, jobs, leaders, results
from tests.model.reference import KnownBatch, KnownJob, Reference

_CALLS = select(func.count()).where(attempts.c.job_id == jobs.c.id).scalar_subquery()
_ANSWERS = (
    select(func.count())
    .where(attempts.c.job_id == jobs.c.id, attempts.c.outcome == Succeeded.__name__.lower())
    .scalar_subquery()
)
_JOBS = (
    select(
        jobs,
        results.c.job_id.is_not(None).label("has_result"),
        results.c.label,
        _CALLS.label("calls"),
        _ANSWERS.label("answers"),
    )
    .outerjoin(results, results.c.job_id == jobs.c.id)
    .order_by(jobs.c.id)
)


@dataclass(slots=True)
class Watch:
    """Remembers how each job has ended, so that no ending is taken back."""

    db: Database
    final: dict[int, Any] = field(default_factory=dict)

    def check(self, reference: Reference, retried: set[int]) -> None:
        """Rows are what the model says, counters are what the rows say, and a final state stays but for a retry."""
        with self.db.read() as connection:
            found = list(connection.execute(_JOBS))
            shown = list(connection.execute(select(batches)))
            leading = connection.execute(select(leaders)).one_or_none()
        assert {row.id: _job(row) for row in found} == reference.jobs
        assert {row.id: _batch(row) for row in shown} == reference.batches
        for batch in shown:
            mine = [row for row in found if row.batch_id == batch.id]
            counted = {state: sum(row.state == state for row in mine) for state in JobState}
            assert {state: getattr(batch, state) for state in JobState} == counted, "counters are not the rows"
            assert batch.total == len(mine)
            left = [row.text_bytes for row in mine if not JobState(row.state).is_final]
            assert batch.text_bytes_left == sum(left)
        for row in found:
            self._check_ending(row, retried)
        lease = None if leading is None else (leading.holder, leading.epoch, leading.expires_at)
        known = reference.leader
        assert lease == (None if known is None else (known.holder, known.epoch, known.until))

    def _check_ending(self, row: Row[Any], retried: set[int]) -> None:
        assert row.answers == (row.state == JobState.SUCCEEDED), "an answer was paid for twice, or is not there"
        assert (row.label is not None) == (row.state == JobState.SUCCEEDED)
        ending = (row.state, row.label, row.finished_at, row.calls)
        if row.id in self.final and row.id not in retried:
            assert self.final[row.id] == ending, "a final state was taken back"
        if JobState(row.state).is_final:
            self.final[row.id] = ending
        else:
            self.final.pop(row.id, None)


def _job(row: Row[Any]) -> KnownJob:
    return KnownJob(
        batch_id=row.batch_id,
        priority=row.priority,
        state=JobState(row.state),
        token=row.lease_token,
        started=row.started_at if row.state == JobState.RUNNING else None,
        until=row.lease_expires_at,
        not_before=row.not_before,
        attempts=row.attempts,
        requeues=row.requeues,
        yields=row.yields,
        reaps=row.reaps,
        truncated=row.truncated,
        label=row.label,
        has_result=row.has_result,
        calls=row.calls,
    )


def _batch(row: Row[Any]) -> KnownBatch:
    return KnownBatch(
        deadline=row.deadline_at,
        state=BatchState(row.state),
        blocked=row.blocked,
        probe_at=row.probe_at,
        probe_token=row.probe_token,
        probes=row.probes,
    )
