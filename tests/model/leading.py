"""The steps of schedulers: one leads, one stands by, and one that was replaced may not know it."""

from datetime import timedelta
from zoneinfo import ZoneInfo

from jobs.store import batches, claims, leader, moves, services
from scheduler import dispatch, service
from scheduler.capacity import Amount
from scheduler.endings import OVERLAP_SECONDS, Endings
from scheduler.hours import SharedHours
from scheduler.permit import PublishedLimit
from scheduler.pool_reading import PoolReading
from tests.model.house import SCHEDULERS, House
from tests.model.permits import CAPACITY, POOL

ALWAYS = SharedHours.of(None, ZoneInfo("UTC"))


class SchedulersAtWork(House):
    """Each step is one round of one of a scheduler's loops."""

    def lead(self, n: int) -> None:
        scheduler = self.schedulers[n]
        now, was_leading = scheduler.db.now(), scheduler.epoch is not None
        is_clock_known = scheduler.db.is_clock_known
        before = self.reference.leader.epoch if self.reference.leader else 0
        epoch = leader.acquire_or_renew(scheduler.db, service.LEADER, scheduler.name, service.LEASE_SECONDS)
        reread, is_settled = scheduler.db.now(), scheduler.db.is_settled
        assert epoch == self.reference.lead(
            scheduler.name, now, reread, service.LEASE_SECONDS, is_settled, is_clock_known
        )
        assert epoch is None or epoch >= before
        scheduler.epoch = epoch
        if epoch is not None and not was_leading:
            scheduler.told = []
            scheduler.endings = Endings(scheduler.db, scheduler.told.append)

    def publish(self, n: int, limit: Amount, ttl_seconds: float) -> None:
        """What one that was replaced publishes is refused, whatever it believes."""
        scheduler = self.schedulers[n]
        if scheduler.epoch is None:
            return
        asked = PublishedLimit(limit, CAPACITY.total.tokens)
        accepted = self.permits.publish(scheduler.ledger, asked, ttl_seconds, scheduler.epoch)
        assert accepted is (scheduler.epoch >= self.highest_epoch), "a limit of a leader that was replaced"
        self.highest_epoch = max(scheduler.epoch, self.highest_epoch)

    def pull_back(self, n: int) -> None:
        scheduler = self.schedulers[n]
        if scheduler.epoch is not None:
            self.permits.revoke(scheduler.ledger, CAPACITY.floor)

    def dispatch(self, n: int) -> None:
        scheduler = self.schedulers[n]
        if scheduler.epoch is None:
            return
        runnable = batches.runnable(scheduler.db)
        assert [work.id for work in runnable] == self.reference.runnable(scheduler.db.now())
        alive = services.alive(scheduler.db, "worker", within_seconds=service.WORKER_SECONDS)
        before = len(self.queue)
        dispatch.dispatch(runnable, alive, self.queue, at_once=4, seconds=30.0)
        assert {task.batch_id for task in self.queue.tasks[before:]} <= {work.id for work in runnable[:1]}
        assert len(self.queue) <= max(before, 1, len(alive)), "the queue stays a few messages long"

    def reap(self, n: int) -> None:
        """Also by one that no longer leads: what it does is guarded by each job's own lease."""
        scheduler = self.schedulers[n]
        if scheduler.epoch is None:
            return
        now, is_clock_known = scheduler.db.now(), scheduler.db.is_clock_known
        is_due = any(job.is_overdue(now, is_clock_known) for job in self.reference.jobs.values())
        reaped = claims.reap(scheduler.db)
        is_settled = scheduler.db.is_settled
        assert reaped == (self.reference.reap(scheduler.db.now(), is_clock_known) if is_due and is_settled else 0)

    def expire(self, n: int) -> None:
        scheduler = self.schedulers[n]
        if scheduler.epoch is not None:
            expected = self.reference.expire_overdue(scheduler.db.at_least())
            assert moves.expire_overdue(scheduler.db) == expected

    def tell(self, n: int) -> None:
        """The ends of batches, each once by each leader; after a step of its clock it may tell one again."""
        scheduler = self.schedulers[n]
        if scheduler.epoch is not None and scheduler.endings is not None:
            scheduler.endings.look()
            ends = [(told["batch_id"], told["finished_at"]) for told in scheduler.told]
            assert self.has_stepped or len(ends) == len(set(ends)), "an end was told twice"

    def note(self, n: int) -> None:
        """A look at the pool for the journal."""
        scheduler = self.schedulers[n]
        if scheduler.epoch is not None:
            snapshot = self.permits.look(scheduler.ledger)
            at = scheduler.db.now()
            scheduler.journal.note([PoolReading.of(POOL, CAPACITY, ALWAYS, snapshot, at)])

    def resign(self, n: int) -> None:
        """It ends, and another begins."""
        scheduler = self.schedulers[n]
        self.reference.resign(scheduler.name, scheduler.db.now())
        leader.resign(scheduler.db, service.LEADER, scheduler.name)
        self.schedulers[n] = self.new_scheduler(n)

    def kill_scheduler(self, n: int) -> None:
        self.schedulers[n] = self.new_scheduler(n)

    def assert_told(self) -> None:
        """The one who leads has told every end of the last half minute."""
        for n in range(SCHEDULERS):
            self.lead(n)
            self.tell(n)
        for scheduler in self.schedulers:
            if scheduler.epoch is not None:
                since = scheduler.db.now() - timedelta(seconds=OVERLAP_SECONDS - 1)
                ended = {batch.id for batch in batches.ended_since(scheduler.db, since)}
                assert {told["batch_id"] for told in scheduler.told} >= ended, "nobody was told of an end"
