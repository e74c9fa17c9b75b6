"""A database that was away for longer than a lease: whoever holds a job and lives keeps it."""

import asyncio
import time
from collections.abc import Iterator

import pytest

from jobs.job import Job
from jobs.store import claims
from jobs.store.database import Database
from jobs.store.errors import StoreUnavailable
from scheduler.reaping import BACK_SECONDS, Reaping
from tests.support.stepping import World
from tests.support.store import LEASE_SECONDS, claim, submit, succeed
from tests.support.wait import wait_until_async
from workers.leases import Leases

OUTAGE_SECONDS = 2 * LEASE_SECONDS
RENEWAL_SECONDS = LEASE_SECONDS / 3


class Scene:
    """A worker that holds a job, and two schedulers that have run for long: one leads, the other stands by."""

    def __init__(self, db: Database, world: World) -> None:
        self.db, self.world = db, world
        self.leading, self.standing_by = (Reaping(db, LEASE_SECONDS, world.monotonic) for _ in range(2))
        self.watch(60)
        self.held = claim(db, submit(db, 1).batch_id)

    def watch(self, seconds: float) -> None:
        for _ in range(round(2 * seconds)):
            self.world.pass_seconds(0.5)
            for reaping in (self.leading, self.standing_by):
                reaping.saw_database()

    def renew(self) -> None:
        assert claims.renew(self.db, {job.lease_token for job in self.held}, LEASE_SECONDS)


@pytest.fixture
def scene(database_url: str) -> Iterator[Scene]:
    world = World()
    db = Database.open(database_url, world.clock())
    yield Scene(db, world)
    db.dispose()


@pytest.mark.parametrize("who", ["leading", "standing_by"])
def test_the_reaper_waits_until_all_have_renewed(scene: Scene, who: str) -> None:
    reaping: Reaping = getattr(scene, who)
    scene.world.pass_seconds(OUTAGE_SECONDS)
    assert reaping.look() == 0  # its loop may be the first to find the database back
    scene.watch(RENEWAL_SECONDS)
    assert reaping.look() == 0
    scene.renew()
    scene.watch(BACK_SECONDS)
    assert reaping.look() == 0
    assert succeed(scene.db, scene.held) == {scene.held[0].id}


def test_a_scheduler_that_begins_when_the_database_is_back_waits_too(scene: Scene) -> None:
    scene.world.pass_seconds(OUTAGE_SECONDS)
    scene.leading = Reaping(scene.db, LEASE_SECONDS, scene.world.monotonic)
    scene.watch(RENEWAL_SECONDS)
    assert scene.leading.look() == 0
    scene.renew()


def test_who_does_not_renew_then_is_reaped(scene: Scene) -> None:
    scene.world.pass_seconds(OUTAGE_SECONDS)
    scene.watch(RENEWAL_SECONDS + BACK_SECONDS + 0.5)
    assert scene.leading.look() == 1


def test_an_outage_shorter_than_a_third_of_a_lease_delays_nothing(scene: Scene) -> None:
    scene.watch(LEASE_SECONDS)
    scene.world.pass_seconds(RENEWAL_SECONDS - 0.5)
    scene.watch(0.5)
    assert scene.leading.look() == 1


@pytest.mark.long
def test_a_renewal_that_failed_is_tried_again_at_once(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """And not only when the next one would be due."""
    renewals: list[float] = []

    def renew(*_: object) -> set[int]:
        renewals.append(time.monotonic())
        if len(renewals) < 3:
            raise StoreUnavailable("the database is away")
        return {job.id for job in held}

    async def scene() -> None:
        lost: list[Job] = []
        leases = Leases(database, "one", 9.0, lost.append)
        held.extend(await leases.claim(submit(database, 1).batch_id, 1))
        renewing = asyncio.create_task(leases.renew_for_ever())
        await wait_until_async(lambda: len(renewals) == 3, "a renewal that succeeds", 30)
        renewing.cancel()
        await asyncio.gather(renewing, return_exceptions=True)
        assert not lost

    held: list[Job] = []
    monkeypatch.setattr("workers.leases.claims.renew", renew)
    asyncio.run(scene())
    assert renewals[2] - renewals[0] < 2 * 9.0 / 3
