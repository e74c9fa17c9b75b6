"""The control loop in a minute that is held out, on a real Valkey server."""

import asyncio
import secrets
from datetime import UTC, datetime
from typing import NamedTuple
from zoneinfo import ZoneInfo

from scheduler.control import PoolControl
from scheduler.holdout import is_held_out, minute_of
from scheduler.hours import SharedHours
from scheduler.ledger import Ledger
from scheduler.limit import Rule
from scheduler.permit import Ask, Kind, Permit, PublishedLimit, Reason, Refusal, Standing
from scheduler.pool_reading import WORDS, Condition, PoolReading
from scheduler.pools import capacity_of
from tests.support.shift import pool_settings
from tests.support.valkey import ValkeyServer

SHARE = 0.5
SMALL = Ask(prompt_tokens=100, output_tokens=10)
ALWAYS = SharedHours(ZoneInfo("UTC"))


class Decided(NamedTuple):
    """What became of a pool in which batch held three requests, one decision later."""

    reading: PoolReading
    standings: set[Standing]
    one_more: Permit | Refusal


def decided(valkey: ValkeyServer, name: str) -> Decided:
    async def act() -> Decided:
        pool = pool_settings("http://127.0.0.1:9/v1", name=name, signal=[{"type": "ledger"}])
        ledger = Ledger.connect(valkey.url, name, capacity_of(pool))
        control = PoolControl(pool, Ledger.connect(valkey.url, name, capacity_of(pool)), ALWAYS, SHARE)
        await ledger.found()
        await ledger.beat()
        await control.open()
        try:
            await ledger.publish(PublishedLimit(ledger.capacity.most_batch, 10_000), 60, 1)
            permits = [await ledger.acquire(Kind.BATCH, SMALL) for _ in range(3)]
            held = [permit for permit in permits if isinstance(permit, Permit)]
            assert held == permits
            for permit in held:
                await ledger.first_token(permit)
            await control.tick(1)
            standings = set((await ledger.renew(held)).values())
            reading = PoolReading.of(name, ledger.capacity, ALWAYS, await ledger.snapshot(), datetime.now(UTC))
            return Decided(reading, standings, await ledger.acquire(Kind.BATCH, SMALL))
        finally:
            await control.aclose()
            await ledger.aclose()

    return asyncio.run(act())


def decided_in_a_minute(valkey: ValkeyServer, *, held_out: bool) -> Decided:
    """Of a pool whose minute is held out or not; once more where the next one has begun meanwhile."""
    while True:
        now = datetime.now(UTC)
        names = (f"pool-{secrets.token_hex(4)}" for _ in range(1000))
        found = decided(valkey, next(name for name in names if is_held_out(name, now, SHARE) is held_out))
        if minute_of(datetime.now(UTC)) == minute_of(now):
            return found


def test_batch_stays_at_its_floor_and_what_runs_may_end(valkey: ValkeyServer) -> None:
    found = decided_in_a_minute(valkey, held_out=True)
    assert found.reading.limit == found.reading.capacity.floor
    assert (found.reading.condition, found.reading.rule) == (Condition.FLOOR, Rule.HOLDOUT)
    assert found.reading.reason == WORDS[Rule.HOLDOUT]
    assert found.standings == {Standing.HELD}
    assert found.one_more == Refusal(Reason.LIMIT)


def test_in_the_other_minutes_it_has_all_that_is_shared(valkey: ValkeyServer) -> None:
    found = decided_in_a_minute(valkey, held_out=False)
    assert found.reading.rule == Rule.MAXIMUM
    assert isinstance(found.one_more, Permit)
