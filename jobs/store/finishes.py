"""What became of claimed jobs: outcome, attempt and result in one transaction, each at most once."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cache
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Connection,
    Integer,
    Row,
    String,
    Text,
    Update,
    insert,
    null,
    or_,
    select,
    update,
)
from sqlalchemy.types import TypeEngine

from jobs.job import Finish
from jobs.outcomes import Cancelled, Expired, Failed, Outcome, Requeued, Succeeded, Symptom
from jobs.states import JobState
from jobs.store import blocking, tally
from jobs.store.database import Database
from jobs.store.given import given, packed
from jobs.tables import TEXT_LEFT, Instant, Values, attempts, jobs, results, said
from jobs.text import storable

RAW_CHARACTERS = 4_000
ERROR_CHARACTERS = 500

# their tokens bought nothing: we let go of the request before its answer
WASTEFUL = frozenset({Symptom.WITHDRAWN, Symptom.STOPPING, Symptom.CANCELLED, Symptom.DEADLINE})
# the endpoint served the request, whatever the answer was worth
SERVED = frozenset({Symptom.INVALID_OUTPUT, Symptom.TOO_LONG, Symptom.REFUSED})


def write(db: Database, finishes: Sequence[Finish]) -> set[int]:
    """Write what became of jobs, all in one transaction; returns the ids of those whose lease was still held.

    For the others nothing is written: they were lost to a reaper, which is a normal return. A job returned to pending
    in a batch that is being cancelled ends as cancelled, past the deadline as expired; the last job of a batch closes
    it. Raises StoreUnavailable, StoreConflict; after a commit whose answer was lost, a second call returns no id.
    """
    by_id: dict[int, Finish] = {}
    other_leases: list[Finish] = []  # of a job that was lost and claimed again: only one of its leases can hold
    for finish in finishes:
        first = by_id.setdefault(finish.job.id, finish)
        if first.job.lease_token != finish.job.lease_token:
            other_leases.append(finish)
    if not by_id:
        return set()
    now, at_least = db.now(), db.at_least()
    rows = packed(db.dialect, [_job_row(finish, now) for finish in by_id.values()])
    with db.begin() as connection:
        won = {row.id: row for row in connection.execute(_finish_jobs(db.dialect), rows)}
        winners = [finish for finish in by_id.values() if finish.job.id in won]
        _insert(connection, attempts, (_attempt_row(f, won[f.job.id]) for f in winners if f.attempt))
        _insert(connection, results, (_result_row(f, won[f.job.id]) for f in winners if _has_result(f)))
        groups: dict[str, _Group] = {}
        for finish in winners:
            groups.setdefault(finish.job.batch_id, _Group()).count(finish, won[finish.job.id].text_bytes)
        for batch_id, group in sorted(groups.items()):
            batch = tally.add(connection, batch_id, group.moved)
            if group.blocked or batch.blocked:
                blocking.judge(connection, batch, group.tokens, group.blocked, group.works, now)
            tally.settle(connection, batch, group.returned, now, at_least)
    return set(won) | write(db, other_leases)


@dataclass(slots=True)
class _Group:
    """What the finishes of one batch come to."""

    moved: dict[str, int] = field(default_factory=dict)
    returned: list[int] = field(default_factory=list)
    tokens: set[str] = field(default_factory=set)
    blocked: str | None = None
    works: bool = False

    def count(self, finish: Finish, text_bytes: int) -> None:
        outcome, attempt = finish.outcome, finish.attempt
        self.tokens.add(finish.job.lease_token)
        self._add(JobState.RUNNING, -1)
        self._add(_state(outcome), 1)
        if isinstance(outcome, Requeued):
            self.returned.append(finish.job.id)
            self._add("yields", int(outcome.is_yield))
            self.blocked = outcome.blocked or self.blocked
        else:
            self._add(TEXT_LEFT, -text_bytes)
        if isinstance(outcome, Succeeded):
            self.works = True
        if attempt is not None:
            self.works = self.works or attempt.symptom in SERVED
            self._add("prompt_tokens", attempt.usage.prompt_tokens)
            self._add("completion_tokens", attempt.usage.completion_tokens)
            self._add("withdrawn", int(attempt.symptom is Symptom.WITHDRAWN))
            if attempt.symptom in WASTEFUL:
                self._add("wasted_tokens", attempt.usage.total)

    def _add(self, counter: str, more: int) -> None:
        self.moved[counter] = self.moved.get(counter, 0) + more


@cache
def _finish_jobs(dialect: str) -> Update:
    """Moves every given job that is still held under its token."""
    columns: dict[str, TypeEngine[Any]] = {
        "id": BigInteger(),
        "token": String(),
        "state": String(),
        "not_before": Instant(),
        "finished_at": Instant(),
        "error": Text(),
        "spent": Integer(),
        "requeued": Integer(),
        "yielded": Integer(),
        "truncate": Boolean(),
    }
    done = given(dialect, "done", **columns)
    is_running = jobs.c.state == said(JobState.RUNNING)
    moves = (
        update(jobs)
        .where(jobs.c.id == done.c.id, jobs.c.lease_token == done.c.token, is_running)
        .values(
            state=done.c.state,
            lease_token=null(),
            lease_expires_at=null(),
            not_before=done.c.not_before,
            finished_at=done.c.finished_at,
            error=done.c.error,
            attempts=jobs.c.attempts + done.c.spent,
            requeues=jobs.c.requeues + done.c.requeued,
            yields=jobs.c.yields + done.c.yielded,
            truncated=or_(jobs.c.truncated, done.c.truncate),
        )
        .returning(jobs.c.id, jobs.c.answer_key, jobs.c.worker, jobs.c.text_bytes)
    )
    if dialect == "sqlite":
        return moves
    # in the order of ids, like every statement that waits for several jobs: two that wait for each other deadlock
    asked = given(dialect, "asked", id=BigInteger(), token=String())
    ours = (
        select(jobs.c.id)
        .join(asked, (jobs.c.id == asked.c.id) & (jobs.c.lease_token == asked.c.token))
        .where(is_running)
        .order_by(jobs.c.id)
        .with_for_update(of=jobs)
    )
    return moves.where(jobs.c.id.in_(ours))


def _state(outcome: Outcome) -> JobState:
    match outcome:
        case Succeeded():
            return JobState.SUCCEEDED
        case Failed():
            return JobState.FAILED
        case Requeued():
            return JobState.PENDING
        case Expired():
            return JobState.EXPIRED
        case Cancelled():
            return JobState.CANCELLED


def _job_row(finish: Finish, now: datetime) -> Values:
    outcome = finish.outcome
    row: Values = {
        "id": finish.job.id,
        "token": finish.job.lease_token,
        "state": _state(outcome),
        "finished_at": now,
        "error": None,
        "not_before": None,
        "spent": int(_has_result(finish)),
        "requeued": 0,
        "yielded": 0,
        "truncate": False,
    }
    match outcome:
        case Failed(error=error) | Expired(reason=error):
            row["error"] = storable(error)[:ERROR_CHARACTERS]
        case Requeued():
            rests = timedelta(seconds=outcome.delay_seconds)
            row |= {
                "finished_at": None,
                "not_before": now + rests if rests else None,
                "spent": int(outcome.spends_attempt),
                "requeued": int(not outcome.keeps_place),
                "yielded": int(outcome.is_yield),
                "truncate": outcome.truncate,
            }
        case Succeeded() | Cancelled():
            pass
    return row


def _attempt_row(finish: Finish, won: Row[Any]) -> Values:
    attempt = finish.attempt
    assert attempt is not None  # noqa: S101 - the caller has filtered
    return {
        "job_id": finish.job.id,
        "number": finish.job.requeues + 1,
        "pool": attempt.pool,
        "model": attempt.model,
        "worker": won.worker,
        "started_at": attempt.started_at,
        "seconds": attempt.seconds,
        "ttft_seconds": attempt.ttft_seconds,
        "prompt_tokens": attempt.usage.prompt_tokens,
        "completion_tokens": attempt.usage.completion_tokens,
        "outcome": type(finish.outcome).__name__.lower(),
        "symptom": attempt.symptom,
        "http_status": attempt.http_status,
        "retry_after_seconds": attempt.retry_after_seconds,
        "label": None if attempt.label is None else storable(attempt.label),
        "detail": storable(attempt.detail)[:ERROR_CHARACTERS],
    }


def _has_result(finish: Finish) -> bool:
    """True where the model's answer, good or bad, ends the job."""
    if isinstance(finish.outcome, Succeeded) and finish.attempt is None:
        raise ValueError(f"job {finish.job.id} succeeded without an attempt")
    return finish.attempt is not None and isinstance(finish.outcome, Succeeded | Failed)


def _result_row(finish: Finish, won: Row[Any]) -> Values:
    attempt = finish.attempt
    assert attempt is not None  # noqa: S101 - the caller has filtered
    label = finish.outcome.label if isinstance(finish.outcome, Succeeded) else None
    return {
        "job_id": finish.job.id,
        "label": None if label is None else storable(label),
        "raw": None if label is not None or attempt.raw is None else storable(attempt.raw)[:RAW_CHARACTERS],
        "model": attempt.model,
        "prompt_tokens": attempt.usage.prompt_tokens,
        "completion_tokens": attempt.usage.completion_tokens,
        "latency_seconds": attempt.seconds,
        "answer_key": None if label is None else won.answer_key,
    }


def _insert(connection: Connection, table: Any, rows: Iterable[Values]) -> None:
    if listed := list(rows):
        connection.execute(insert(table), listed)
