"""The event loop of a worker process, in a thread of its own: the executor and every pool live there."""

import asyncio
import logging
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from jobs.retry import RetryPolicy
from jobs.store.database import Database
from scheduler.ledger import Ledger
from scheduler.pools import capacity_of
from tickets_batch.errors import UserError
from tickets_batch.settings import Settings, reveal
from workers.client import ModelClient
from workers.endpoint import Endpoint
from workers.executor import Executor
from workers.gate import Gate
from workers.metrics import Held, Metrics

log = logging.getLogger(__name__)

LONGEST_TASK_SECONDS = 600.0

T = TypeVar("T")


class Runtime:
    """Runs an executor for as long as the process lives. The methods are for other threads."""

    def __init__(self, settings: Settings, db: Database, worker: str) -> None:
        self._settings = settings
        self._db = db
        self._worker = worker
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="loop", daemon=True)
        self._executor: Executor | None = None
        self._endpoints: dict[str, Endpoint] = {}
        self.metrics = Metrics(self._endpoints, self._held)
        self.batch_id: str | None = None  # what the current task drives

    def start(self) -> None:
        """Open every pool and begin to write. Raises LedgerUnavailable when Redis does not answer, SettingsError."""
        self._thread.start()
        self._run(self._open())

    def drive(self, batch_id: str, at_once: int, seconds: float) -> None:
        """Work on a batch, within this process's own bounds whatever was asked; returns when the time is up."""
        if self._executor is None:
            return
        at_once = max(1, min(at_once, self._settings.worker.at_once))
        self.batch_id = batch_id
        try:
            self._run(self._executor.drive(batch_id, at_once, min(seconds, LONGEST_TASK_SECONDS)))
        except UserError as error:  # a forged or very late message
            log.warning("a task came to nothing: %.300s", error)
        finally:
            self.batch_id = None

    def stop(self, grace_seconds: float) -> None:
        """End what is in flight within the grace, yield the rest, write everything, close the connections."""
        if self._executor is not None and not self._run(self._executor.stop(grace_seconds)):
            log.error("some results were not written: their jobs will be done again")
        self._run(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def detail(self) -> dict[str, Any]:
        """What the heartbeat tells of this process."""
        estimates = {}
        for name, endpoint in self._endpoints.items():
            report = endpoint.estimator.report()
            estimates[name] = {"ratio": round(report.ratio, 3), "error": round(report.mean_error, 3), "n": report.count}
        in_flight = self._executor.in_flight if self._executor else 0
        blocked = {name: why for name, endpoint in self._endpoints.items() if (why := endpoint.health.blocked)}
        return {"batch": self.batch_id, "in_flight": in_flight, "estimates": estimates, "blocked": blocked}

    def _held(self) -> Held:
        return self._executor.held() if self._executor else Held({}, 0, 0)

    async def _open(self) -> None:
        redis_url = reveal(self._settings.redis_url or "")
        for pool in self._settings.pool:
            ledger = Ledger.connect(redis_url, pool.name, capacity_of(pool))
            await ledger.snapshot()  # a Redis that is not there is said at the start
            at_once = min(self._settings.worker.at_once, pool.capacity.slots)
            gate = Gate(ledger, pool.engine)
            self._endpoints[pool.name] = Endpoint(pool, ModelClient(pool, at_once=at_once), gate)
            gate.open()
        policy = RetryPolicy(attempts=self._settings.worker.attempts)
        lease_seconds = self._settings.worker.lease_seconds
        self._executor = Executor(
            self._db,
            self._endpoints,
            policy,
            self._worker,
            lease_seconds,
            deadline_grace_seconds=self._settings.deadline_grace_seconds,
            note=self.metrics.note,
        )
        self._executor.open()

    async def _close(self) -> None:
        for endpoint in self._endpoints.values():
            await endpoint.gate.aclose()
            await endpoint.client.aclose()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()
