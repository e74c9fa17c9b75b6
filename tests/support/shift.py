"""One worker's executor in this process, on a real database, ledger and engine: what a task does, without Celery."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from jobs.retry import RetryPolicy
from jobs.spec import ClassificationSpec
from jobs.states import BatchState
from jobs.store import batches, results, submissions
from jobs.store.batches import Batch
from jobs.store.database import Database
from jobs.store.results import ResultRow
from jobs.store.submissions import SubmitRequest
from jobs.ticket import Ticket
from scheduler.capacity import Amount, PoolCapacity
from scheduler.ledger import LEASE_SECONDS, Ledger
from scheduler.permit import PublishedLimit
from tests.support.valkey import ValkeyServer
from tickets_batch.settings import Pool
from workers.client import ModelClient
from workers.endpoint import Endpoint
from workers.executor import Executor
from workers.gate import Gate

LABELS = ("account", "billing", "shipping", "technical")
SPEC = ClassificationSpec(labels={label: f"about {label}" for label in LABELS}, max_output_tokens=24)
POOL = PoolCapacity(Amount(20, 60_000), Amount(4, 12_000), Amount(1, 2_000))
POLICY = RetryPolicy(attempts=3, base_seconds=0.05, cap_seconds=0.2)


@dataclass(slots=True)
class Shift:
    """A batch, and the worker that works on it."""

    db: Database
    ledger: Ledger
    executor: Executor
    endpoint: Endpoint
    batch_id: str

    def batch(self) -> Batch:
        return batches.get(self.db, self.batch_id)

    def rows(self) -> dict[str, ResultRow]:
        return {row.custom_id: row for row in results.stream(self.db, self.batch_id)}

    async def drive(self, seconds: float = 30.0, at_once: int = 64) -> None:
        """One task."""
        await self.executor.drive(self.batch_id, at_once, seconds)

    async def is_pulled_back(self, withdrawn: int) -> bool:
        """Ask back what is over the floor, as the scheduler does again and again: whether so many were withdrawn."""
        await self.ledger.revoke(POOL.floor)  # what was about to end is spared, until it is late
        return self.batch().withdrawn >= withdrawn

    async def finish(self) -> None:
        """Task after task, until the batch has ended."""
        async with asyncio.timeout(60):
            while not self.batch().state.is_final:
                await self.drive(seconds=2.0)
                await asyncio.sleep(0.01)


def submit(db: Database, bodies: Iterable[str], **changes: Any) -> str:
    """A batch with one ticket per body, ids from t-0."""
    values: dict[str, Any] = {
        "source_key": "tests",
        "source": "tests",
        "date": None,
        "zone": "UTC",
        **with_spec(SPEC),
        "model": "test-model",
        "pools": ("gpu",),
    }
    tickets = [Ticket(f"t-{number}", "", body, line=number + 2) for number, body in enumerate(bodies)]
    return submissions.submit(db, SubmitRequest(**(values | changes)), tickets).batch_id


def with_spec(spec: ClassificationSpec) -> dict[str, Any]:
    """What to give `submit` for another spec than `SPEC`."""
    return {"spec": spec.model_dump(mode="json"), "spec_hash": spec.hash}


def pool_settings(base_url: str, **changes: Any) -> Pool:
    values: dict[str, Any] = {
        "name": "gpu",
        "base_url": base_url,
        "model": "test-model",
        "engine": "vllm",
        "capacity": {"slots": 20, "tokens": 60_000},
        "protected": {"interactive": {"slots": 4, "tokens": 12_000}, "batch": {"slots": 1, "tokens": 2_000}},
        "request_timeout_seconds": 10,
    }
    return Pool.model_validate(values | changes)


@asynccontextmanager
async def at_work(
    db: Database,
    valkey: ValkeyServer,
    base_url: str,
    bodies: Iterable[str],
    *,
    pool: Pool | None = None,
    worker: str = "worker-1",
    batch_id: str | None = None,
    lease_seconds: float = 15.0,
    permit_lease_seconds: float = LEASE_SECONDS,
    grace_seconds: float = 2.0,
    **changes: Any,
) -> AsyncIterator[Shift]:
    """A submitted batch and an executor on it; whatever happens, it ends as a stopped worker does.

    With `batch_id`, one more worker on that batch.
    """
    batch_id = batch_id or submit(db, bodies, **changes)
    ledger = Ledger.connect(valkey.url, "gpu", POOL, permit_lease_seconds)
    await ledger.found()
    await ledger.publish(PublishedLimit(POOL.most_batch, POOL.most_batch.tokens), ttl_seconds=600, leader_epoch=1)
    settings = pool or pool_settings(base_url)
    gate = Gate(Ledger.connect(valkey.url, "gpu", POOL, permit_lease_seconds), settings.engine)
    gate.open()
    endpoint = Endpoint(settings, ModelClient(settings, at_once=20), gate)
    executor = Executor(db, {"gpu": endpoint}, POLICY, worker, lease_seconds, deadline_grace_seconds=grace_seconds)
    executor.open()
    try:
        yield Shift(db, ledger, executor, endpoint, batch_id)
    finally:
        await executor.stop(grace_seconds=0.5)
        await gate.aclose()
        await endpoint.client.aclose()
        await ledger.aclose()


def play(scene: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run a scene on a loop of its own, within a minute."""

    async def bounded() -> None:
        async with asyncio.timeout(60):
            await scene()

    asyncio.run(bounded())


def is_done(shift: Shift) -> bool:
    return shift.batch().state is BatchState.COMPLETED
