"""The scheduler: one leader among any number of them, and its loops.

The control loop runs on an event loop of its own and touches Redis only; dispatch, reap, samples and pace may wait for
the database or the broker without stopping it.
"""

import asyncio
import logging
import os
import secrets
import socket
import threading
from collections.abc import Callable
from contextlib import AsyncExitStack
from datetime import timedelta
from functools import partial

from jobs.store import batches, leader, moves, purge, services
from jobs.store.database import Database
from jobs.store.errors import StoreConflict, StoreUnavailable
from scheduler.batch_metrics import OpenBatches
from scheduler.control import PoolControl, control
from scheduler.dispatch import Queue, QueueUnavailable, dispatch
from scheduler.endings import Endings
from scheduler.hours import SharedHours
from scheduler.journal import Journal
from scheduler.ledger import Ledger, LedgerUnavailable
from scheduler.metrics import Metrics
from scheduler.pacing import Pacing
from scheduler.pool_reading import PoolReading
from scheduler.pools import capacity_of
from scheduler.reaping import Reaping
from scheduler.scrape import served
from scheduler.webhook import Webhook
from tickets_batch.settings import Settings, reveal

log = logging.getLogger(__name__)

LEADER = "scheduler"
LEASE_SECONDS = 4.0  # a standby takes over within this and one tick
TICK_SECONDS = 0.5
REAP_SECONDS = 1.0
BEAT_SECONDS = 2.0
LOOK_SECONDS = 1.0
PACE_SECONDS = 10.0
WORKER_SECONDS = 10.0  # a worker not heard of for longer gets no task
FORGET_SECONDS = 3600.0
PURGE_SECONDS = 10.0


class Scheduler:
    """One scheduler process. `at_once` and `task_seconds` are what its tasks ask of a worker.

    Raises SettingsError where a secret that a signal needs is missing.
    """

    def __init__(self, settings: Settings, db: Database, queue: Queue, at_once: int, task_seconds: float) -> None:
        self._db = db
        self._queue = queue
        self._at_once = at_once
        self._task_seconds = task_seconds
        self._identity = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(2)}"
        self._redis_url = reveal(settings.redis_url or "")
        self._pools = settings.pool
        self._hours = {pool.name: SharedHours.of(pool.shared_hours, settings.zone) for pool in settings.pool}
        self._controls = [
            PoolControl(pool, ledger, self._hours[pool.name], settings.scheduler.holdout)
            for pool, ledger in zip(settings.pool, self._ledgers(), strict=True)
        ]
        self._webhook = Webhook(settings.alert.webhook.reveal() if settings.alert.webhook else None)
        targets_seconds = {pool.name: pool.ttft_target_seconds for pool in settings.pool}
        self._metrics = Metrics(targets_seconds, lambda: self._epoch is not None)
        self._metrics.registry.register(self._webhook.alerts)
        self._metrics_listen = settings.scheduler.metrics_listen
        self._keeps_text = settings.keep_text
        self._pacing = partial(Pacing, db, settings.pool, settings.zone, self._webhook.tell)
        self._paced: tuple[int, Pacing] | None = None  # for which epoch: of what another has led nothing is known
        self._reaping = Reaping(db, settings.worker.lease_seconds)
        self._endings: Endings | None = None
        self._epoch: int | None = None
        self._stop = threading.Event()

    def run(self, stop: threading.Event) -> None:
        """Schedule until `stop` is set.

        Raises LedgerUnavailable when Redis does not answer at the start, UserError where the metrics cannot be served.
        """
        asyncio.run(self._check_redis())
        with self._webhook, served(self._metrics.registry, self._metrics_listen, "scheduler.metrics_listen"):
            self._run(stop)
        self._sign_off()

    def _run(self, stop: threading.Event) -> None:
        loops = [
            threading.Thread(target=asyncio.run, args=(self._control(),), name="control", daemon=True),
            threading.Thread(target=asyncio.run, args=(self._sample(),), name="sample", daemon=True),
            *(
                threading.Thread(target=self._every, args=(seconds, act), name=act.__name__, daemon=True)
                for seconds, act in (
                    (TICK_SECONDS, self._lead),
                    (TICK_SECONDS, self._dispatch),
                    (REAP_SECONDS, self._reap),
                    (BEAT_SECONDS, self._beat),
                    (PACE_SECONDS, self._pace),
                    *(() if self._keeps_text else ((PURGE_SECONDS, self._purge),)),
                )
            ),
        ]
        for loop in loops:
            loop.start()
        log.info("scheduler %s is at work", self._identity)
        stop.wait()
        self._stop.set()
        for loop in loops:
            loop.join()
        try:
            self._tell_endings()  # a waiting submit stops its scheduler as soon as the batch has ended
        except StoreUnavailable as error:
            log.warning("what has ended may not have been told: %s", error)

    # --- the loops

    def _lead(self) -> None:
        was_leading = self._epoch is not None
        try:
            self._epoch = leader.acquire_or_renew(self._db, LEADER, self._identity, LEASE_SECONDS)
        except (StoreUnavailable, StoreConflict):
            self._epoch = None  # another one may lead by now
            raise
        self._reaping.saw_database()
        if self._epoch is not None and not was_leading:
            self._endings = Endings(self._db, self._webhook.tell)
            log.info("scheduler %s leads, epoch %d", self._identity, self._epoch)

    def _dispatch(self) -> None:
        if self._epoch is None:
            return
        workers = services.alive(self._db, "worker", within_seconds=WORKER_SECONDS)
        dispatch(batches.runnable(self._db), workers, self._queue, self._at_once, self._task_seconds)

    def _reap(self) -> None:
        if self._epoch is None:
            return
        if count := self._reaping.look():
            self._metrics.reaped.inc(count)
            log.warning("%d jobs came back from workers whose lease ran out", count)
        moves.expire_overdue(self._db)
        self._tell_endings()

    def _beat(self) -> None:
        detail = {"leads": self._epoch is not None, "epoch": self._epoch}
        services.beat(self._db, "scheduler", self._identity, socket.gethostname(), os.getpid(), detail)
        if self._epoch is not None:
            services.forget(self._db, FORGET_SECONDS)

    def _pace(self) -> None:
        epoch = self._epoch
        if epoch is None:
            self._paced = None
            return
        if self._paced is None or self._paced[0] != epoch:
            self._paced = (epoch, self._pacing())
        made = self._paced[1].look()
        workers = services.alive(self._db, "worker", within_seconds=WORKER_SECONDS)
        self._metrics.show_batches(OpenBatches(batches.open_work(self._db), made, len(workers)))

    def _purge(self) -> None:
        if self._epoch is None:
            return
        for done in purge.purge_ended(self._db, timedelta(0)):
            log.info("%s: the text of %d tickets was removed", done.batch_id, done.texts)

    async def _control(self) -> None:
        async with AsyncExitStack() as stack:
            for pool in self._controls:
                stack.push_async_callback(pool.aclose)
                await pool.open()
            task = asyncio.create_task(control(self._controls, lambda: self._epoch))
            await asyncio.to_thread(self._stop.wait)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _sample(self) -> None:
        """Keep the journal of the pools; what waits here for the database stops nothing else."""
        ledgers = self._ledgers()
        journal = Journal(self._db)
        while not self._stop.is_set():
            try:
                if self._epoch is not None:
                    readings = [await self._reading(ledger) for ledger in ledgers]
                    self._metrics.show_pools(readings)
                    if paced := self._paced:
                        paced[1].note(readings)
                    journal.note(readings)
            except (StoreUnavailable, StoreConflict, LedgerUnavailable) as error:
                log.warning("sample: %s", error)
            except Exception:
                log.exception("sample failed")
            await asyncio.to_thread(self._stop.wait, LOOK_SECONDS)
        for ledger in ledgers:
            await ledger.aclose()

    # --- inside

    def _ledgers(self) -> list[Ledger]:
        return [Ledger.connect(self._redis_url, pool.name, capacity_of(pool)) for pool in self._pools]

    async def _reading(self, ledger: Ledger) -> PoolReading:
        snapshot = await ledger.snapshot()
        return PoolReading.of(ledger.pool, ledger.capacity, self._hours[ledger.pool], snapshot, self._db.now())

    def _every(self, seconds: float, act: Callable[[], None]) -> None:
        """Call `act` again and again; what is away now may be there the next time."""
        while not self._stop.is_set():
            try:
                act()
            except (StoreUnavailable, StoreConflict, QueueUnavailable) as error:
                log.warning("%s: %s", act.__name__.strip("_"), error)
            except Exception:
                log.exception("%s failed", act.__name__.strip("_"))
            self._stop.wait(seconds)

    async def _check_redis(self) -> None:
        for ledger in self._ledgers():
            try:
                await ledger.snapshot()
            finally:
                await ledger.aclose()

    def _tell_endings(self) -> None:
        if self._epoch is not None and self._endings is not None:
            self._endings.look()

    def _sign_off(self) -> None:
        try:
            leader.resign(self._db, LEADER, self._identity)
            services.leave(self._db, "scheduler", self._identity)
        except (StoreUnavailable, StoreConflict) as error:
            log.warning("the scheduler did not sign off: %s", error)
        log.info("scheduler %s has ended", self._identity)
