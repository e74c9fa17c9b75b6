"""A pool as its ledger shows it, quiet unless the test says otherwise."""

import json
from dataclasses import replace
from typing import Any
from zoneinfo import ZoneInfo

from scheduler.capacity import NOTHING, Amount, PoolCapacity
from scheduler.hours import SharedHours
from scheduler.permit import Kind, Outlook
from scheduler.pool_reading import PoolReading
from scheduler.snapshot import FirstToken, Snapshot
from tests.support.store import START

BERLIN = ZoneInfo("Europe/Berlin")
CAPACITY = PoolCapacity(Amount(20, 60_000), protected_interactive=Amount(8, 24_000), floor=Amount(2, 6_000))
DEDICATED = PoolCapacity(Amount(20, 60_000), protected_interactive=NOTHING, floor=Amount(20, 60_000))

_QUIET = Snapshot(
    interactive=NOTHING,
    batch=NOTHING,
    batch_expected_seconds=0.0,
    reclaiming=NOTHING,
    prefill_tokens=0,
    limit=CAPACITY.most_batch,
    prefill_limit_tokens=3_000,
    limit_is_published=True,
    observed=NOTHING,
    observed_is_fresh=False,
    paused_seconds=0.0,
    interactive_waiting=0,
    oldest_waiting_seconds=0.0,
    epoch="one",
    outlook=Outlook(),
    arrivals=0,
    refused=0,
    revoked=0,
    first_tokens=0,
    recent=(),
    beat_age_seconds=None,
    note="",
)


def snapshot(**changed: Any) -> Snapshot:
    """The whole shared part is published, and nobody holds anything."""
    return replace(_QUIET, **changed)


def stale(**changed: Any) -> Snapshot:
    """No limit is in force: the ledger answers the floor."""
    return snapshot(limit=CAPACITY.floor, limit_is_published=False, **changed)


def reading(
    seen: Snapshot | None = None,
    *,
    name: str = "gpu",
    capacity: PoolCapacity = CAPACITY,
    hours: SharedHours | None = None,
    at: Any = START,
) -> PoolReading:
    return PoolReading.of(name, capacity, hours or SharedHours(BERLIN), seen or snapshot(), at)


def note(
    rule: str = "most", why: str = "", *, age_seconds: float = 0.2, is_blind: bool = False, **sources: float | None
) -> str:
    """What the scheduler left with a limit `age_seconds` ago; of each source the age at that time."""
    ages = [{"name": name, "age_seconds": age, "is_fresh": age is not None} for name, age in sources.items()]
    load = {"in_flight": {"slots": 0, "tokens": 0}, "sources": ages, "is_blind": is_blind, "is_congested": False}
    return json.dumps({"rule": rule, "why": why, "load": load, "reserve": 1, "at": START.timestamp() - age_seconds})


def waited(*seconds: float, kind: Kind = Kind.INTERACTIVE) -> tuple[FirstToken, ...]:
    return tuple(FirstToken(kind, one, 500) for one in seconds)
