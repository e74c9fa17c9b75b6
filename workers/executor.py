"""The executor of one process: takes jobs of a batch, admits them, and keeps many in flight on one event loop.

claim -> admit -> fly (call, judge, give back) -> write. A task drives it for some seconds; what is in flight when the
time is up flies on under the next task, so that slow jobs do not hold empty slots behind them.
"""

import asyncio
import contextlib
import logging
import random
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice

from jobs.hindrance import Hindrance
from jobs.job import Claim, Finish, Job
from jobs.outcomes import Failed, Requeued, Symptom
from jobs.retry import RetryPolicy
from jobs.store.batches import BatchWork
from jobs.store.database import Database
from jobs.store.errors import StoreConflict, StoreUnavailable
from scheduler.ledger import LedgerUnavailable
from scheduler.permit import Reason
from tickets_batch.errors import UserError
from workers.brief import Brief
from workers.endpoint import Endpoint
from workers.flight import Flight
from workers.forever import for_ever
from workers.leases import Leases
from workers.metrics import Held
from workers.pools import ASK_AGAIN_SECONDS, Granted, Pools, Refused
from workers.watch import Watch
from workers.writer import Writer

log = logging.getLogger(__name__)

AHEAD = 32  # jobs claimed before they are admitted: few, for an urgent ticket comes behind them
MOST_AHEAD = 64  # where they are used up before the next are here
LOOK_SECONDS = 1.0  # how often the state of a batch is read
SERVICE_AWAY_SECONDS = 0.5
NOTHING_TO_CLAIM_SECONDS = 0.25
LATE_SECONDS = 0.001  # an alarm must not come before its time, to which it is rounded
MOST_ASKS = 8  # permits asked for at a time: they go to the ledger together, at half the cost of one alone
UNWRITTEN = 32  # finishes not yet in SQL at which admission waits: what a kill repeats stays bounded


class Executor:
    """Works on one batch at a time. All methods run on one event loop; `note` is told on it how each job ended."""

    def __init__(
        self,
        db: Database,
        endpoints: Mapping[str, Endpoint],
        policy: RetryPolicy,
        worker: str,
        lease_seconds: float,
        monotonic: Callable[[], float] = time.monotonic,
        *,
        deadline_grace_seconds: float,
        note: Callable[[Finish], None] = lambda finish: None,
    ) -> None:
        self._pools = Pools(endpoints, monotonic)
        self._policy = policy
        self._monotonic = monotonic
        self._grace_seconds = deadline_grace_seconds
        self._note = note
        self._leases = Leases(db, worker, lease_seconds, self._lose)
        self._writer = Writer(db, self._let_go)
        self._watch = Watch(db, monotonic)
        self._waiting: deque[Job] = deque()
        self._flights: dict[Claim, Flight] = {}
        self._blocking: dict[Claim, str] = {}  # the batches of jobs whose "blocked" is not yet in SQL
        self._alarms: dict[str, asyncio.TimerHandle] = {}  # of each batch, when its deadline and the grace are over
        self._driving: asyncio.Task[None] | None = None
        self._claiming: asyncio.Task[list[Job]] | None = None
        # Twice as many after each claim that admission had to wait for, as it has for a task's first; else one less.
        self._ahead = AHEAD // 2
        self._wake = asyncio.Event()
        self._stopping = False
        self._asks = 1  # as many permits are asked for at a time: twice as many after each grant, one after a refusal
        self._tasks: list[asyncio.Task[None]] = []
        self._loop = asyncio.get_running_loop()

    @property
    def in_flight(self) -> int:
        """Requests at the engines now."""
        return len(self._flights)

    def held(self) -> Held:
        """What this process holds now; for any thread."""
        in_flight = Counter(flight.endpoint.pool.name for flight in list(self._flights.values()))
        return Held(in_flight, len(self._waiting), self._writer.backlog)

    def open(self) -> None:
        """Begin to write, to renew and to watch."""
        self._writer.start()
        self._tasks = [
            asyncio.create_task(self._leases.renew_for_ever()),
            asyncio.create_task(for_ever(LOOK_SECONDS, self._look_around)),
        ]

    async def drive(self, batch_id: str, at_once: int, seconds: float) -> None:
        """Work on a batch for `seconds`, with up to `at_once` requests in flight, or until it has nothing to give."""
        until = self._monotonic() + seconds
        work = await self._look(batch_id)
        if work is None:
            return
        brief = Brief.of(work)
        self._driving = asyncio.current_task()
        self._ahead = AHEAD // 2
        try:
            while self._monotonic() < until and self._goes_on(batch_id):
                if not await self._advance(brief, at_once):
                    break
        finally:
            await self._return_waiting()
            self._driving = None

    async def stop(self, grace_seconds: float) -> bool:
        """Admit nothing more, let what is in flight end within the grace, yield the rest; False if writing failed."""
        self._stopping = True
        self._wake.set()
        flying = [flight.task for flight in self._flights.values() if flight.task]
        driving = [self._driving] if self._driving else []  # it may be about to bring jobs
        if flying or driving:
            await asyncio.wait([*flying, *driving], timeout=grace_seconds)
        for flight in list(self._flights.values()):
            flight.withdraw(Symptom.STOPPING)
        if flying:
            await asyncio.wait(flying)
        await self._return_waiting()
        everything = await asyncio.to_thread(self._writer.close, grace_seconds + 5)
        for task in self._tasks:
            task.cancel()
        for batch_id in list(self._alarms):
            self._silence(batch_id)
        await asyncio.gather(*self._tasks, return_exceptions=True)
        return everything

    # --- one step: have a job, have room, fly

    async def _advance(self, brief: Brief, at_once: int) -> bool:
        """Start jobs, or wait a moment; False when the batch has nothing to give now."""
        self._wake.clear()  # before we look: what comes back while we do must end the rest
        room = min(at_once - len(self._flights), UNWRITTEN - self._writer.backlog)
        if room <= 0:
            await self._rest(ASK_AGAIN_SECONDS)
            return True
        try:
            if self._pools.is_to_wait(brief) and not await self._is_to_probe(brief):
                return False
            if not await self._have_jobs(brief):
                return False
            rest_seconds = await self._start_some(brief, room)
        except (StoreUnavailable, StoreConflict, LedgerUnavailable) as error:
            log.warning("admission waits: %s", error)
            rest_seconds = SERVICE_AWAY_SECONDS
        if rest_seconds > 0:
            await self._rest(rest_seconds * (0.5 + random.random()))  # noqa: S311 - jitter
        return True

    async def _is_to_probe(self, brief: Brief) -> bool:
        """Whether the store has given us the probe of a batch that we would leave alone yet; rests where it has not."""
        await self._return_waiting()
        if await self._is_blocked(brief.batch_id):
            self._waiting.extend(await self._leases.claim(brief.batch_id, 1))
            # Looked at again: where another worker's answer came first, what we were given is no probe.
            if self._waiting and await self._is_blocked(brief.batch_id):
                self._pools.probe_now(brief)
                return True
        await self._rest(LOOK_SECONDS)
        return False

    async def _is_blocked(self, batch_id: str) -> bool:
        work = await self._look(batch_id)
        return work is not None and work.blocked is not None

    async def _have_jobs(self, brief: Brief) -> bool:
        """Keep some jobs waiting; claims ahead, so that admission rarely waits for SQL. False: there is nothing now."""
        ahead = 1 if self._pools.is_blocked(brief) else self._ahead
        if self._claiming is None and len(self._waiting) <= ahead // 2:
            want = ahead - len(self._waiting)
            self._claiming = asyncio.create_task(self._leases.claim(brief.batch_id, want))
        if self._claiming is not None and (self._claiming.done() or not self._waiting):
            claimed, self._claiming = self._claiming, None
            was_in_time = claimed.done()
            taken = await claimed
            self._waiting.extend(taken)
            if taken:
                self._ahead = max(AHEAD, self._ahead - 1) if was_in_time else min(MOST_AHEAD, 2 * self._ahead)
            if not self._waiting:
                await self._rest(NOTHING_TO_CLAIM_SECONDS)
                return bool(self._flights) or self._writer.backlog > 0
        return True

    async def _start_some(self, brief: Brief, room: int) -> float:
        """Start the first waiting jobs, or a smaller one where the first is too large for now.

        Gives 0 when some were started or have ended, else the seconds after which it is worth asking again.
        """
        if not self._waiting:
            return 0.0
        endpoints = self._pools.of(brief)
        if not endpoints:
            finish = Finish(self._waiting.popleft(), Requeued(blocked=_no_pool(brief), keeps_place=True))
            self._hand_in(brief, finish)
            return 0.0
        jobs = list(islice(self._waiting, min(room, self._asks)))
        refusals = await self._start_each(brief, jobs, endpoints)
        if len(jobs) > 1 or not refusals:  # the first that was refused is asked for again, alone
            return 0.0
        if smaller := self._pools.smaller(brief, self._waiting, jobs[0], refusals):
            of_its_size = [refusal.endpoint for refusal in refusals if refusal.is_of_its_size]
            if not await self._start(brief, smaller, of_its_size):
                return 0.0
        return min(LOOK_SECONDS, *(refusal.again_seconds for refusal in refusals))

    async def _start_each(self, brief: Brief, jobs: Sequence[Job], endpoints: Sequence[Endpoint]) -> list[Refused]:
        """Start several jobs at once; all refusals. Raises what the first raised that could not ask."""
        self._asks = 1  # unless all goes well
        asked = (self._start(brief, job, endpoints) for job in jobs)
        answers = await asyncio.gather(*asked, return_exceptions=True)  # none may still ask when the next begin
        refusals = []
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
            refusals += answer
        if not refusals:
            self._asks = min(MOST_ASKS, 2 * len(jobs))
        return refusals

    async def _start(self, brief: Brief, job: Job, endpoints: Sequence[Endpoint]) -> list[Refused]:
        """Start a job at the first pool that takes it; the refusals, none when it was started or has ended."""
        answer = await self._pools.offer(brief, job, endpoints)
        if isinstance(answer, Granted):
            await self._launch(brief, job, answer)
            return []
        if any(refusal.reason is Reason.TOO_LARGE for refusal in answer) and self._is_too_large(brief, job):
            return []
        return answer

    async def _launch(self, brief: Brief, job: Job, granted: Granted) -> None:
        endpoint, permit, mark = granted.endpoint, granted.permit, granted.mark
        if not self._goes_on(brief.batch_id) or job not in self._waiting:  # stopped, late, or lost, while we asked
            endpoint.health.not_made(mark)
            await endpoint.gate.give_back(permit, aborted=False)
            return
        self._waiting.remove(job)
        flight = Flight(job, brief, endpoint, permit, mark, self._policy, partial(self._hand_in, brief))
        self._flights[job.claim] = flight
        endpoint.gate.hold(permit, flight.withdraw)
        flight.task = asyncio.create_task(flight.fly())
        flight.task.add_done_callback(lambda _: self._landed(job))

    def _is_too_large(self, brief: Brief, job: Job) -> bool:
        """A job that no pool could ever carry ends; another pool may yet be asked."""
        why = self._pools.why_too_large(brief, job)
        if why is None or job not in self._waiting:
            return False
        self._waiting.remove(job)
        self._put(Finish(job, Failed(f"too_large: {why}")))
        return True

    # --- endings

    def _landed(self, job: Job) -> None:
        flight = self._flights.pop(job.claim)
        assert flight.task is not None  # noqa: S101 - set where the flight began
        if not flight.task.cancelled() and (error := flight.task.exception()):
            log.error("a flight crashed; its lease runs out", exc_info=error)
            self._leases.drop([job])
        self._wake.set()

    def _hand_in(self, brief: Brief, finish: Finish) -> None:
        """What became of a job that was tried; what blocks one pool blocks its batch only where no other can serve."""
        outcome = finish.outcome
        if isinstance(outcome, Requeued) and outcome.blocked:
            if not self._pools.found_blocked(brief):
                finish = replace(finish, outcome=replace(outcome, blocked=None))
        elif not self._pools.is_blocked(brief):
            self._pools.served(brief)
        self._put(finish)

    def _put(self, finish: Finish) -> None:
        """Hand a finish to the writer; from one that blocks its batch on, no other job of that batch is started."""
        if isinstance(finish.outcome, Requeued) and finish.outcome.blocked:
            self._blocking[finish.job.claim] = finish.job.batch_id
        self._note(finish)
        self._writer.put(finish)

    async def _return_waiting(self) -> None:
        """Jobs claimed but never started go back as they were; of a batch that is ending, the store ends them."""
        if self._claiming is not None:
            claimed, self._claiming = self._claiming, None
            try:
                self._waiting.extend(await claimed)
            except (StoreUnavailable, StoreConflict) as error:
                log.warning("a claim failed: %s", error)
        while self._waiting:
            self._put(Finish(self._waiting.popleft(), Requeued(keeps_place=True)))

    def _let_go(self, jobs: Sequence[Job]) -> None:
        """On the writer's thread."""
        self._loop.call_soon_threadsafe(self._drop, jobs)

    def _drop(self, jobs: Sequence[Job]) -> None:
        self._leases.drop(jobs)
        for job in jobs:
            self._blocking.pop(job.claim, None)
        self._wake.set()

    def _lose(self, lost: Job) -> None:
        self._leases.drop([lost])
        if flight := self._flights.get(lost.claim):
            flight.lose()
        self._waiting = deque(job for job in self._waiting if job.claim != lost.claim)

    # --- watching the batches

    async def _look_around(self) -> None:
        for batch_id in {flight.job.batch_id for flight in self._flights.values()} | set(self._watch):
            try:
                await self._look(batch_id)
            except UserError:  # it was purged
                self._forget(batch_id)
            self._heed(batch_id)

    async def _look(self, batch_id: str) -> BatchWork | None:
        """Read a batch, and set the alarm of its deadline: nothing that the store does then holds it up."""
        work = await self._watch.look(batch_id)
        self._silence(batch_id)
        seconds = self._watch.seconds_left(batch_id)
        if seconds is not None and not self._stopping:
            after = seconds + self._grace_seconds + LATE_SECONDS
            self._alarms[batch_id] = self._loop.call_later(after, self._heed, batch_id)
        return work

    def _forget(self, batch_id: str) -> None:
        self._silence(batch_id)
        self._watch.forget(batch_id)

    def _silence(self, batch_id: str) -> None:
        if alarm := self._alarms.pop(batch_id, None):
            alarm.cancel()

    def _heed(self, batch_id: str) -> None:
        flights = [flight for flight in self._flights.values() if flight.job.batch_id == batch_id]
        if self._watch.is_cancelling(batch_id):
            for flight in flights:
                flight.withdraw(Symptom.CANCELLED)
        elif self._watch.is_past_deadline(batch_id, self._grace_seconds):
            for flight in flights:
                flight.withdraw(Symptom.DEADLINE)
        elif not flights and self._driving is None:
            self._forget(batch_id)

    def _goes_on(self, batch_id: str) -> bool:
        is_blocking = batch_id in self._blocking.values()
        return not self._stopping and not is_blocking and self._watch.goes_on(batch_id)

    async def _rest(self, seconds: float) -> None:
        """Wait, but not beyond the next permit that comes back, or the stop."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wake.wait()


def _no_pool(brief: Brief) -> str:
    return Hindrance.NO_POOL.of(", ".join(brief.pools))
