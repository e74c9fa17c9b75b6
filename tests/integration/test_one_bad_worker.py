"""One worker that cannot serve a batch beside one that can: it does not block the batch again and again."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import pytest

from jobs.job import Finish, Job
from jobs.outcomes import Attempt, Succeeded
from jobs.store import claims, events, finishes
from jobs.store.database import Database
from scheduler.simulation.engine.profile import EngineProfile
from tests.engine.faults import Fault, Rule
from tests.engine.process import EngineThread
from tests.support.aftermath import aftermath
from tests.support.several_pools import at_several_pools
from tests.support.shift import POOL, Shift, at_work, play
from tests.support.skipping import RunningClock
from tests.support.valkey import ValkeyServer
from tests.support.wait import wait_until_async

pytest_plugins = ["tests.support.skipping_fixtures"]

QUICK = EngineProfile().changed({"step_base_seconds": 0.01})
PROBES = 3  # after 5, 15 and 35 s: no test lasts longer


@pytest.fixture
def good() -> Iterator[EngineThread]:
    with EngineThread(QUICK) as engine:
        yield engine


@pytest.fixture
def bad() -> Iterator[EngineThread]:
    with EngineThread(QUICK) as engine:
        yield engine


def bodies(count: int) -> list[str]:
    return [f"Where is parcel {number}?" for number in range(count)]


def told(shift: Shift) -> Counter[str]:
    return Counter(event.kind for event in events.recent(shift.db, shift.batch_id, 10_000))


@asynccontextmanager
async def driving(*shifts: Shift) -> AsyncIterator[None]:
    """Every worker takes message after message, until the batch has ended."""

    async def work(shift: Shift) -> None:
        while not shift.batch().state.is_final:
            await shift.drive(seconds=5.0)
            await asyncio.sleep(0.02)  # as a worker, which waits for its next message

    async with asyncio.TaskGroup() as group:
        for shift in shifts:
            group.create_task(work(shift))
        yield


@pytest.mark.long
@pytest.mark.parametrize("kind", ["401", "500", "no pool"])
def test_the_batch_is_not_blocked_again_and_again(
    kind: str, sqlite_url: str, valkey: ValkeyServer, good: EngineThread, bad: EngineThread
) -> None:
    database = Database.open(sqlite_url)
    name = "gpu" if kind != "no pool" else "elsewhere"
    if kind != "no pool":
        bad.set_faults(Rule(Fault(kind)))

    async def scene() -> None:
        async with (
            at_work(database, valkey, good.base_url, bodies(500)) as one,
            at_several_pools(database, valkey, {name: bad}, [], allow_empty=True, source_key="none") as two,
        ):
            two.batch_id = one.batch_id
            async with driving(one, two):
                pass
            seen = told(one)
            assert aftermath(database, one.batch_id).states == {"succeeded": 500}
            assert 1 <= seen["blocked"] <= 1 + PROBES
            assert seen["unblocked"] == seen["blocked"]
            assert len(bad.log()) <= 10 + POOL.most_batch.slots + PROBES

    play(scene)
    database.dispose()


@pytest.mark.long
def test_it_serves_again_when_its_own_probe_succeeds(
    sqlite_url: str, valkey: ValkeyServer, good: EngineThread, bad: EngineThread
) -> None:
    database = Database.open(sqlite_url)
    clock = RunningClock()
    bad.set_faults(Rule(Fault("401")))

    async def scene() -> None:
        async with (
            at_work(database, valkey, good.base_url, bodies(1_000)) as one,
            at_several_pools(
                database, valkey, {"gpu": bad}, [], clock=clock, allow_empty=True, source_key="none"
            ) as two,
        ):
            two.batch_id = one.batch_id
            async with driving(one, two):
                await wait_until_async(lambda: told(one)["blocked"] == 1, "the bad worker to be refused")
                await wait_until_async(lambda: two.executor.in_flight == 0, "what it had in flight")
                first_wave = len(bad.log())
                clock.skip(5.1)
                await wait_until_async(lambda: len(bad.log()) == first_wave + 1, "its probe")
                await wait_until_async(lambda: told(one)["blocked"] == 2, "the probe's word")
                bad.set_faults()
                clock.skip(10.1)
                await wait_until_async(lambda: sum(row.outcome == "ok" for row in bad.log()) > 20, "it to serve again")
            assert told(one)["blocked"] == 2
            assert set(aftermath(database, one.batch_id).spent) == {1}

    play(scene)
    database.dispose()


def test_a_job_that_was_given_after_another_worker_s_answer_is_no_probe(
    skipping_database: Database,
    running_clock: RunningClock,
    valkey: ValkeyServer,
    bad: EngineThread,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bad.set_faults(Rule(Fault("401")))

    async def scene() -> None:
        async with at_work(skipping_database, valkey, bad.base_url, bodies(40)) as shift:
            (others,) = claims.claim(skipping_database, shift.batch_id, 1, "worker-2", 600.0)
            while shift.batch().blocked is None:
                await shift.drive(seconds=2.0)
            await wait_until_async(lambda: shift.batch().running == 1, "everything to be written")
            first_wave = len(bad.log())
            running_clock.skip(5.1)  # the store's time, not the process's
            answers = [Finish(others, Succeeded("billing"), answer())]

            def claim_after_it(db: Database, *of: object) -> list[Job]:
                while answers:
                    finishes.write(db, [answers.pop()])
                return claims_claim(db, *of)

            monkeypatch.setattr("workers.leases.claims.claim", claim_after_it)
            await shift.drive(seconds=2.0)
            await wait_until_async(lambda: shift.batch().running == 0, "what was given to go back")
            assert answers == []
            assert (shift.batch().blocked, len(bad.log())) == (None, first_wave)

    claims_claim: Callable[..., list[Job]] = claims.claim
    play(scene)


def answer() -> Attempt:
    return Attempt(started_at=datetime.now(UTC), seconds=0.1, pool="gpu", model="test-model", label="billing")
