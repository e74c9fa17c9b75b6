"""The store as it ought to be: what becomes of jobs, batches and the leader's lease, in dictionaries.

Nothing here reads a clock or a database. Each verb does what the verb of the same name in `jobs.store` promises, and
gives what that is to answer.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from jobs.job import Finish, Job
from jobs.outcomes import Cancelled, Expired, Failed, Requeued, Succeeded
from jobs.states import BatchState, JobState
from jobs.store.blocking import FIRST_PROBE_SECONDS, LONGEST_PROBE_SECONDS
from jobs.store.claims import REAPS
from jobs.store.clock import SETTLING_SECONDS
from jobs.store.finishes import SERVED
from jobs.store.rest import LONGEST_REST

SETTLING = timedelta(seconds=SETTLING_SECONDS)
OPEN = (BatchState.RUNNING, BatchState.PAUSED, BatchState.CANCELLING)
RETRIABLE = (JobState.FAILED, JobState.EXPIRED)


@dataclass(slots=True)
class KnownJob:
    """One job: the columns that its history decides, its answer, and the calls that were written for it."""

    batch_id: str
    priority: int
    state: JobState = JobState.PENDING
    token: str | None = None
    started: datetime | None = None
    until: datetime | None = None
    not_before: datetime | None = None
    attempts: int = 0
    requeues: int = 0
    yields: int = 0
    reaps: int = 0
    truncated: bool = False
    label: str | None = None
    has_result: bool = False
    calls: int = 0

    def leave(self, becomes: JobState) -> None:
        """Out of its worker's hands."""
        self.state, self.token, self.started, self.until = becomes, None, None, None

    def is_overdue(self, now: datetime, is_clock_known: bool) -> bool:
        """Whether its worker is taken for dead: also where it claimed the job long from now and never renewed."""
        if self.until is None or self.started is None:
            return False
        return self.until <= now or (is_clock_known and self.until > self.started > now + SETTLING)

    def is_due(self, now: datetime) -> bool:
        """Whether it has rested, or seems to rest for longer than any job does."""
        return self.not_before is None or not now < self.not_before <= now + LONGEST_REST


@dataclass(slots=True)
class KnownBatch:
    """One batch; its counters are those of its jobs."""

    deadline: datetime | None
    state: BatchState = BatchState.RUNNING
    blocked: str | None = None
    probe_at: datetime | None = None
    probe_token: str | None = None
    probes: int = 0

    def gives(self, now: datetime) -> bool:
        """Whether it hands out jobs."""
        is_late = self.deadline is not None and self.deadline <= now
        is_resting = self.probe_at is not None and self.probe_at > now
        return self.state is BatchState.RUNNING and not is_late and not is_resting

    def ends(self, at_least: datetime) -> JobState | None:
        """What becomes of a job that returns now; None: it waits for the next worker."""
        if self.state is BatchState.CANCELLING:
            return JobState.CANCELLED
        is_late = self.deadline is not None and self.deadline <= at_least
        return JobState.EXPIRED if is_late and self.state in OPEN else None

    def judge(self, tokens: Collection[str], why: str | None, works: bool, now: datetime) -> None:
        """What these leases have found out of the endpoint."""
        is_probe = self.probe_token in tokens
        if works:
            self.blocked = self.probe_at = self.probe_token = None
            self.probes = 0
        elif why is not None and self.blocked is None:
            self.blocked, self.probes = why, 0
            self.probe_at = now + timedelta(seconds=FIRST_PROBE_SECONDS)
        elif why is not None and is_probe:
            self.blocked, self.probes, self.probe_token = why, self.probes + 1, None
            self.probe_at = now + timedelta(seconds=min(FIRST_PROBE_SECONDS * 2**self.probes, LONGEST_PROBE_SECONDS))
        elif is_probe:
            self.probe_at, self.probe_token = now + timedelta(seconds=FIRST_PROBE_SECONDS), None


@dataclass(slots=True)
class Leader:
    """Who leads, under which epoch, until when."""

    holder: str
    epoch: int
    until: datetime


@dataclass(slots=True)
class Reference:
    """All that is known of the night."""

    jobs: dict[int, KnownJob] = field(default_factory=dict)
    batches: dict[str, KnownBatch] = field(default_factory=dict)
    leader: Leader | None = None

    # --- reading

    def of(self, batch_id: str, *states: JobState) -> list[int]:
        """The ids of a batch's jobs in these states, in the order in which they are claimed."""
        found = [(n, job) for n, job in self.jobs.items() if job.batch_id == batch_id and job.state in states]
        return [n for n, _ in sorted(found, key=lambda one: (-one[1].priority, one[1].requeues, one[0]))]

    def due(self, batch_id: str, now: datetime) -> list[int]:
        """The jobs that a claim may take now, in its order."""
        if not self.batches[batch_id].gives(now):
            return []
        waiting = self.of(batch_id, JobState.PENDING)
        return [n for n in waiting if self.jobs[n].is_due(now)]

    def runnable(self, now: datetime) -> list[str]:
        """The batches with something to claim, the nearest deadline first, then the oldest."""
        ids = [batch_id for batch_id in self.batches if self.due(batch_id, now)]
        far = datetime.max.replace(tzinfo=now.tzinfo)
        return sorted(ids, key=lambda batch_id: self.batches[batch_id].deadline or far)

    # --- workers

    def claim(self, batch_id: str, limit: int, now: datetime) -> list[int]:
        """The jobs that a claim is to give; `took` says under which token it did."""
        return self.due(batch_id, now)[: 1 if self.batches[batch_id].blocked else limit]

    def took(self, job: Job, now: datetime) -> None:
        """A job was handed out."""
        known, batch = self.jobs[job.id], self.batches[job.batch_id]
        known.state, known.token = JobState.RUNNING, job.lease_token
        known.started, known.until = now, job.lease_expires_at
        if batch.blocked is not None:
            batch.probe_token, batch.probe_at = job.lease_token, now + timedelta(seconds=LONGEST_PROBE_SECONDS)

    def is_held(self, job: Job) -> bool:
        """Whether a claim still holds its job."""
        known = self.jobs[job.id]
        return known.state is JobState.RUNNING and known.token == job.lease_token

    def renew(self, tokens: Collection[str], until: datetime) -> set[int]:
        """The jobs still held under these tokens."""
        held = {n for n, job in self.jobs.items() if job.state is JobState.RUNNING and job.token in tokens}
        for n in held:
            self.jobs[n].until = until
        return held

    def finish(self, finishes: Sequence[Finish], now: datetime, at_least: datetime) -> set[int]:
        """The jobs of which something is to be written: those still held."""
        by_id: dict[int, Finish] = {}
        later: list[Finish] = []  # of a job that came to the same worker twice: a transaction of its own
        for finish in finishes:
            first = by_id.setdefault(finish.job.id, finish)
            if first.job.lease_token != finish.job.lease_token:
                later.append(finish)
        won = [finish for finish in by_id.values() if self.is_held(finish.job)]
        for finish in won:
            self._end(finish, now)
        for batch_id in sorted({finish.job.batch_id for finish in won}):
            self._settle(batch_id, [finish for finish in won if finish.job.batch_id == batch_id], now, at_least)
        return {finish.job.id for finish in won} | (self.finish(later, now, at_least) if later else set())

    # --- the scheduler

    def lead(
        self, holder: str, now: datetime, reread: datetime, lease_seconds: float, is_settled: bool, is_clock_known: bool
    ) -> int | None:
        """The epoch under which `holder` leads; who takes over from another has read the clock anew."""
        lease, leader = timedelta(seconds=lease_seconds), self.leader

        def is_over(until: datetime, now: datetime) -> bool:
            return until <= now or (is_clock_known and until > now + lease + SETTLING)

        if leader is None:
            self.leader = Leader(holder, int(now.timestamp()), now + lease)
        elif leader.holder == holder and leader.until > now:
            self.leader = Leader(holder, leader.epoch, now + lease)
        elif leader.holder == holder:
            self.leader = Leader(holder, max(leader.epoch + 1, int(now.timestamp())), now + lease)
        elif is_over(leader.until, now) and is_over(leader.until, reread) and is_settled:
            self.leader = Leader(holder, max(leader.epoch + 1, int(reread.timestamp())), reread + lease)
        else:
            return None
        return self.leader.epoch

    def resign(self, holder: str, now: datetime) -> None:
        """The leader goes."""
        if self.leader is not None and self.leader.holder == holder and self.leader.until > now:
            self.leader.until = now

    def reap(self, now: datetime, is_clock_known: bool) -> int:
        """Every job whose lease has run out goes back, or ends where it has outlived too many workers."""
        lost = [job for job in self.jobs.values() if job.is_overdue(now, is_clock_known)]
        for batch_id in sorted({job.batch_id for job in lost}):
            of_it = [job for job in lost if job.batch_id == batch_id]
            batch = self.batches[batch_id]
            batch.judge({str(job.token) for job in of_it}, None, False, now)
            for job in of_it:
                job.reaps += 1
                if job.reaps >= REAPS:
                    job.leave(JobState.FAILED)
                else:
                    job.requeues += 1
                    job.leave(batch.ends(now) or JobState.PENDING)
            self._close(batch_id)
        return len(lost)

    def expire_overdue(self, at_least: datetime) -> int:
        """Every batch past its deadline, or half cancelled, ends what waits; how many jobs have expired."""
        expired = 0
        for batch_id, batch in self.batches.items():
            if becomes := batch.ends(at_least):
                waiting = self.of(batch_id, JobState.PENDING)
                self._all(waiting, becomes)
                expired += len(waiting) if becomes is JobState.EXPIRED else 0
            self._close(batch_id)
        return expired

    # --- a person

    def move(self, batch_id: str, movable: Iterable[BatchState], becomes: BatchState) -> bool:
        """Whether the batch may move, and moves."""
        batch = self.batches[batch_id]
        if batch.state not in movable:
            return False
        batch.state = becomes
        return True

    def cancel_waiting(self, batch_id: str) -> None:
        """The second half of a cancel."""
        self._all(self.of(batch_id, JobState.PENDING), JobState.CANCELLED)
        self._close(batch_id)

    def retry(self, batch_id: str, deadline: datetime | None) -> list[int] | None:
        """The failed and expired jobs begin anew; None where that is refused."""
        batch, again = self.batches[batch_id], self.of(batch_id, *RETRIABLE)
        if not again or batch.state in (BatchState.CANCELLING, BatchState.CANCELLED):
            return None
        for n in again:
            job = self.jobs[n]
            job.leave(JobState.PENDING)
            job.attempts, job.reaps, job.requeues = 0, 0, job.requeues + 1
            job.not_before, job.label, job.has_result = None, None, False
        batch.deadline = deadline
        if batch.state is not BatchState.PAUSED:
            batch.state = BatchState.RUNNING
        return again

    # --- inside

    def _end(self, finish: Finish, now: datetime) -> None:
        job, outcome = self.jobs[finish.job.id], finish.outcome
        job.not_before = None
        job.calls += int(finish.attempt is not None)
        match outcome:
            case Succeeded(label=label):
                job.leave(JobState.SUCCEEDED)
                job.label, job.has_result = label, True
                job.attempts += 1
            case Failed():
                job.leave(JobState.FAILED)
                job.has_result = finish.attempt is not None
                job.attempts += int(job.has_result)
            case Expired():
                job.leave(JobState.EXPIRED)
            case Cancelled():
                job.leave(JobState.CANCELLED)
            case Requeued():
                job.leave(JobState.PENDING)
                job.attempts += int(outcome.spends_attempt)
                job.requeues += int(not outcome.keeps_place)
                job.yields += int(outcome.is_yield)
                job.truncated |= outcome.truncate
                if outcome.delay_seconds:
                    job.not_before = now + timedelta(seconds=outcome.delay_seconds)

    def _settle(self, batch_id: str, group: Sequence[Finish], now: datetime, at_least: datetime) -> None:
        batch = self.batches[batch_id]
        works = any(
            isinstance(finish.outcome, Succeeded) or (finish.attempt and finish.attempt.symptom in SERVED)
            for finish in group
        )
        said = [finish.outcome.blocked for finish in group if isinstance(finish.outcome, Requeued)]
        why = next((one for one in reversed(said) if one), None)
        batch.judge({finish.job.lease_token for finish in group}, why, works, now)
        if becomes := batch.ends(at_least):
            self._all([finish.job.id for finish in group if isinstance(finish.outcome, Requeued)], becomes)
        self._close(batch_id)

    def _all(self, ids: Iterable[int], becomes: JobState) -> None:
        for n in ids:
            self.jobs[n].leave(becomes)

    def _close(self, batch_id: str) -> None:
        batch = self.batches[batch_id]
        if batch.state not in OPEN or self.of(batch_id, JobState.PENDING, JobState.RUNNING):
            return
        if batch.state is BatchState.CANCELLING:
            batch.state = BatchState.CANCELLED
        else:
            batch.state = BatchState.EXPIRED if self.of(batch_id, JobState.EXPIRED) else BatchState.COMPLETED
        batch.blocked = batch.probe_at = batch.probe_token = None
        batch.probes = 0
