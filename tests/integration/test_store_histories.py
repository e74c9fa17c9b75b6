"""Random histories of one batch, against a model that is a dictionary."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jobs.job import Finish, Job
from jobs.outcomes import Attempt, Cancelled, Expired, Failed, Outcome, Requeued, Succeeded, Symptom
from jobs.states import BatchState, JobState
from jobs.store import batches, claims, finishes, moves
from jobs.store.database import Database
from jobs.tables import metadata
from tests.support.store import (
    LEASE_SECONDS,
    START,
    ManualClock,
    assert_consistent,
    assert_texts_are_counted,
    attempt,
    claim,
    submit,
    ticket,
)
from tickets_batch.errors import UserError

DEADLINE = START + timedelta(seconds=200)

OUTCOMES: dict[str, tuple[Outcome, Attempt | None]] = {
    "succeeded": (Succeeded("shipping"), attempt(label="shipping")),
    "failed": (Failed("invalid_output: empty"), attempt(Symptom.INVALID_OUTPUT, raw="")),
    "retry": (Requeued(spends_attempt=True, delay_seconds=20), attempt(Symptom.TIMED_OUT)),
    "yield": (Requeued(is_yield=True), attempt(Symptom.WITHDRAWN)),
    "not started": (Requeued(is_yield=True), None),
    "expired": (Expired(), None),
    "cancelled": (Cancelled(), attempt(Symptom.CANCELLED)),
}

outcomes = st.sampled_from(sorted(OUTCOMES))
steps = st.one_of(
    st.tuples(st.just("claim"), st.integers(1, 6)),
    st.tuples(st.just("finish"), st.integers(0, 9), st.lists(outcomes, min_size=1, max_size=4)),
    st.tuples(st.just("lapse")),
    st.tuples(st.just("claim"), st.integers(1, 6)),
    st.tuples(st.just("finish"), st.integers(0, 30), st.lists(outcomes, min_size=1, max_size=4)),
    st.tuples(st.just("submit"), st.integers(1, 12), st.booleans()),
    st.tuples(st.just("renew"), st.integers(0, 9)),
    st.tuples(st.just("advance"), st.integers(1, 120)),
    st.tuples(st.just("reap")),
    st.tuples(st.just("pause")),
    st.tuples(st.just("resume")),
    st.tuples(st.just("cancel")),
    st.tuples(st.just("retry")),
    st.tuples(st.just("expire")),
)


@dataclass
class Known:
    """What the model knows of one job."""

    priority: int
    state: JobState = JobState.PENDING
    token: str = ""
    until: datetime = START
    not_before: datetime = START
    requeues: int = 0
    reaps: int = 0
    text: int = 0


@dataclass
class Model:
    """The batch as it ought to be."""

    clock: ManualClock
    batch: str = ""
    state: BatchState = BatchState.RUNNING
    deadline: datetime = DEADLINE
    jobs: dict[str, Known] = field(default_factory=dict)
    held: list[Job] = field(default_factory=list)  # every lease ever given, the lost ones too

    def ids(self, state: JobState) -> list[str]:
        return [name for name, known in self.jobs.items() if known.state is state]

    def back(self, known: Known) -> None:
        """A job that returns to pending, or ends with its batch."""
        known.requeues += 1
        known.token = ""
        known.state = JobState.PENDING
        if self.state is BatchState.CANCELLING:
            known.state = JobState.CANCELLED
        elif self.deadline <= self.clock():
            known.state = JobState.EXPIRED

    def close(self) -> None:
        if self.state.is_final or self.ids(JobState.PENDING) or self.ids(JobState.RUNNING):
            return
        if self.state is BatchState.CANCELLING:
            self.state = BatchState.CANCELLED
        else:
            self.state = BatchState.EXPIRED if self.ids(JobState.EXPIRED) else BatchState.COMPLETED


class History:
    """Each step done to the store and to the model."""

    def __init__(self, db: Database, clock: ManualClock) -> None:
        self.db, self.model = db, Model(clock)

    def submit(self, count: int, changes: bool) -> None:
        model = self.model
        version = max((known.text for known in model.jobs.values()), default=0) + int(changes)
        rows = [ticket(n, "text" + "é" * version if n % 3 == 0 else "text", priority=n % 2) for n in range(count)]
        try:
            done = submit(self.db, rows, update=True, deadline_at=model.clock() + timedelta(seconds=200))
        except UserError:
            assert model.state in (BatchState.CANCELLING, BatchState.CANCELLED)
            return
        assert model.state not in (BatchState.CANCELLING, BatchState.CANCELLED)
        if not model.batch:
            model.batch = done.batch_id
            model.deadline = model.clock() + timedelta(seconds=200)
        assert done.batch_id == model.batch
        self._expire_late()
        added, updated, busy = 0, 0, 0
        for row in rows:
            known = model.jobs.get(row.custom_id)
            text = version if row.body != "text" else 0
            if known is None:
                model.jobs[row.custom_id] = Known(row.priority, text=text)
                added += 1
            elif known.text != text and known.state is JobState.RUNNING:
                busy += 1
            elif known.text != text:
                known.state, known.text, known.not_before, known.reaps = JobState.PENDING, text, START, 0
                known.requeues += 1
                updated += 1
        assert (done.added, done.updated, len(done.busy_ids)) == (added, updated, busy)
        if (model.state.is_final or model.deadline <= model.clock()) and model.ids(JobState.PENDING):
            model.state = BatchState.PAUSED if model.state is BatchState.PAUSED else BatchState.RUNNING
            model.deadline = model.clock() + timedelta(seconds=200)

    def claim(self, limit: int) -> None:
        model, now = self.model, self.model.clock()
        got = claim(self.db, model.batch, limit)
        gives = model.state is BatchState.RUNNING and now < model.deadline
        due = [name for name in model.ids(JobState.PENDING) if gives and model.jobs[name].not_before <= now]
        due.sort(key=lambda name: (-model.jobs[name].priority, model.jobs[name].requeues, int(name[2:])))
        assert [job.custom_id for job in got] == due[:limit]
        for job in got:
            known = model.jobs[job.custom_id]
            known.state, known.token = JobState.RUNNING, job.lease_token
            known.until = now + timedelta(seconds=LEASE_SECONDS)
        model.held += got

    def finish(self, first: int, names: list[str]) -> None:
        model = self.model
        asked = list(zip(model.held[first : first + len(names)], names, strict=False))
        won = finishes.write(self.db, [Finish(job, *OUTCOMES[name]) for job, name in asked])
        expected = set()
        for job, name in asked:
            known = model.jobs[job.custom_id]
            if known.state is not JobState.RUNNING or known.token != job.lease_token:
                continue
            expected.add(job.id)
            if name in ("retry", "yield", "not started"):
                known.not_before = model.clock() + timedelta(seconds=20 if name == "retry" else 0)
                model.back(known)
            else:
                known.state, known.token = JobState(name), ""
        assert won == expected
        model.close()

    def renew(self, index: int) -> None:
        model = self.model
        for job in model.held[index : index + 1]:
            ours = {
                name
                for name, known in model.jobs.items()
                if known.state is JobState.RUNNING and known.token == job.lease_token
            }
            ids = {held.custom_id: held.id for held in model.held}
            assert claims.renew(self.db, {job.lease_token}, LEASE_SECONDS) == {ids[name] for name in ours}
            for name in ours:
                model.jobs[name].until = model.clock() + timedelta(seconds=LEASE_SECONDS)

    def advance(self, seconds: int) -> None:
        self.model.clock.advance(seconds)

    def reap(self) -> None:
        model = self.model
        lost = [known for known in model.jobs.values() if known.state is JobState.RUNNING]
        lost = [known for known in lost if known.until <= model.clock()]
        assert claims.reap(self.db) == len(lost)
        for known in lost:
            known.reaps += 1
            if known.reaps >= claims.REAPS:
                known.state, known.token = JobState.FAILED, ""
            else:
                known.not_before = START
                model.back(known)
        model.close()

    def lapse(self) -> None:
        """Every worker is silent for longer than its lease, and the reaper comes by."""
        self.advance(int(LEASE_SECONDS))
        self.reap()

    def pause(self) -> None:
        self._move("pause", (BatchState.RUNNING,), BatchState.PAUSED)

    def resume(self) -> None:
        self._move("resume", (BatchState.PAUSED,), BatchState.RUNNING)

    def cancel(self) -> None:
        model = self.model
        if self._move("cancel", (BatchState.RUNNING, BatchState.PAUSED, BatchState.CANCELLING), BatchState.CANCELLING):
            for name in model.ids(JobState.PENDING):
                model.jobs[name].state = JobState.CANCELLED
            model.close()

    def retry(self) -> None:
        model = self.model
        again = model.ids(JobState.FAILED) + model.ids(JobState.EXPIRED)
        legal = (BatchState.RUNNING, BatchState.PAUSED, BatchState.COMPLETED, BatchState.EXPIRED)
        deadline = model.clock() + timedelta(seconds=200)
        try:
            count = moves.retry(self.db, model.batch, deadline)
        except UserError:
            assert model.state not in legal or not again
            return
        assert model.state in legal
        assert count == len(again) > 0
        model.deadline = deadline
        for name in again:
            known = model.jobs[name]
            known.state, known.not_before, known.reaps = JobState.PENDING, START, 0
            known.requeues += 1
        if model.state is not BatchState.PAUSED:
            model.state = BatchState.RUNNING

    def expire(self) -> None:
        assert moves.expire_overdue(self.db) == self._expire_late()

    def _expire_late(self) -> int:
        model = self.model
        is_late = model.state in (BatchState.RUNNING, BatchState.PAUSED) and model.deadline <= model.clock()
        late = model.ids(JobState.PENDING) if is_late else []
        for name in late:
            model.jobs[name].state = JobState.EXPIRED
        model.close()
        return len(late)

    def _move(self, verb: str, legal: tuple[BatchState, ...], becomes: BatchState) -> bool:
        try:
            getattr(moves, verb)(self.db, self.model.batch)
        except UserError:
            assert self.model.state not in legal
            return False
        assert self.model.state in legal
        self.model.state = becomes
        return True

    def check(self) -> None:
        shown = batches.get(self.db, self.model.batch)
        counted = {state: len(self.model.ids(state)) for state in JobState}
        assert shown.state is self.model.state
        assert {state: getattr(shown, state.value) for state in JobState} == counted
        with self.db.read() as connection:
            assert_texts_are_counted(connection)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(history=st.lists(steps, min_size=10, max_size=50))
def test_a_random_history_goes_as_the_model_says(
    store: Database, store_clock: ManualClock, history: list[tuple[str, ...]]
) -> None:
    with store.begin() as connection:
        for table in reversed(metadata.sorted_tables):
            connection.execute(table.delete())
    store_clock.instant = START
    run = History(store, store_clock)
    run.submit(6, changes=False)

    for name, *arguments in history:
        getattr(run, name)(*arguments)
        run.check()

    assert_consistent(store)
