"""A worker's executor on a batch with several pools, each with an engine of its own."""

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from jobs.store.database import Database
from scheduler.ledger import Ledger
from scheduler.permit import PublishedLimit
from scheduler.pools import capacity_of
from tests.engine.process import EngineHandle
from tests.support.shift import POLICY, Shift, pool_settings, submit
from tests.support.skipping import RunningClock
from tests.support.valkey import ValkeyServer
from workers.client import ModelClient
from workers.endpoint import Endpoint
from workers.executor import Executor
from workers.gate import Gate
from workers.health import EndpointHealth


@dataclass(slots=True)
class PoolsShift(Shift):
    """A shift whose `ledger` and `endpoint` are those of the first pool."""

    ledgers: Mapping[str, Ledger]
    endpoints: Mapping[str, Endpoint]


@asynccontextmanager
async def at_several_pools(
    db: Database,
    valkey: ValkeyServer,
    engines: Mapping[str, EngineHandle],
    bodies: Iterable[str],
    *,
    clock: RunningClock | None = None,
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    **changes: Any,
) -> AsyncIterator[PoolsShift]:
    """A submitted batch for the pools named, in their order, and an executor on it; `clock` is that of their health."""
    batch_id = submit(db, bodies, **({"pools": tuple(engines)} | changes))
    clock = clock or RunningClock()
    ledgers, endpoints = {}, {}
    for name, engine in engines.items():
        pool = pool_settings(engine.base_url, name=name, **(settings or {}).get(name, {}))
        capacity = capacity_of(pool)
        ledgers[name] = Ledger.connect(valkey.url, name, capacity)
        await ledgers[name].found()
        limit = PublishedLimit(capacity.most_batch, capacity.most_batch.tokens)
        await ledgers[name].publish(limit, ttl_seconds=600, leader_epoch=1)
        gate = Gate(Ledger.connect(valkey.url, name, capacity), pool.engine)
        gate.open()
        client = ModelClient(pool, at_once=20)
        endpoints[name] = Endpoint(pool, client, gate, EndpointHealth(clock.monotonic))
    executor = Executor(db, endpoints, POLICY, "worker-1", 15.0, clock.monotonic, deadline_grace_seconds=2.0)
    executor.open()
    first = next(iter(engines))
    try:
        yield PoolsShift(db, ledgers[first], executor, endpoints[first], batch_id, ledgers, endpoints)
    finally:
        await executor.stop(grace_seconds=0.5)
        for name, endpoint in endpoints.items():
            await endpoint.gate.aclose()
            await endpoint.client.aclose()
            await ledgers[name].aclose()
