"""A batch in the middle of its night, as the live view looks at it; a test changes what it is about."""

from dataclasses import replace
from datetime import date, timedelta
from typing import Any

from jobs.states import BatchState
from jobs.store.batches import Batch
from jobs.store.events import Event
from jobs.store.forecasts import StoredForecast
from jobs.store.services import Service
from scheduler.capacity import Amount
from scheduler.permit import Outlook
from scheduler.pool_reading import PoolReading
from tests.support.readings import note, reading, snapshot
from tests.support.store import START
from tickets_batch.cli.live.first_tokens import Heard
from tickets_batch.cli.live.look import Look, PoolLook

HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)
ID = "batch_2026113022"
HEARD = Heard(count=17, p50_seconds=0.31, p95_seconds=0.52)
WHY = "headroom: chat holds 6 of 20 slots; kept for it: 2 more"


def batch(**changed: Any) -> Batch:
    """40,000 tickets of which half are done, due at 07:00 in Berlin."""
    made = Batch(
        id=ID,
        date=date(2026, 11, 30),
        zone="Europe/Berlin",
        source="exports/tickets-2026-11-30.csv",
        sequence=1,
        spec_hash="a" * 64,
        model="qwen2.5-7b-instruct",
        pools=("gpu",),
        state=BatchState.RUNNING,
        blocked=None,
        probe_at=None,
        created_at=START - 6 * HOUR,
        not_before=None,
        deadline_at=START + 8 * HOUR,
        started_at=START - 6 * HOUR,
        finished_at=None,
        total=40_000,
        pending=19_975,
        running=9,
        succeeded=20_004,
        failed=12,
        expired=0,
        cancelled=0,
        reused=0,
        rejected=0,
        yields=40,
        withdrawn=3,
        prompt_tokens=9_000_000,
        completion_tokens=240_000,
        wasted_tokens=1_204,
        text_bytes_left=8_000_000,
    )
    return replace(made, **changed)


def forecast(**changed: Any) -> StoredForecast:
    made = StoredForecast(
        batch_id=ID,
        at=START - timedelta(seconds=4),
        jobs_left=19_984,
        tokens_left=9_000_000,
        achieved_rate=420.0,
        needed_rate=310.4,
        floor_rate=50.0,
        full_rate=900.0,
        chat_slots=3.5,
        p50_at=START + 6 * HOUR + 40 * MINUTE,
        p90_at=START + 7 * HOUR + 10 * MINUTE,
        floor_at=START + 20 * HOUR,
        pace="on_track",
    )
    return replace(made, **changed)


def busy(**changed: Any) -> PoolReading:
    """Six chat requests beside nine tickets; `changed` is of the snapshot."""
    seen: dict[str, Any] = {
        "interactive": Amount(6, 18_000),
        "batch": Amount(9, 30_000),
        "outlook": Outlook(high=Amount(9, 27_000), reserve=1),
        "note": note("headroom", WHY, age_seconds=0.4, ledger=0.2, engine=1.0),
    }
    return reading(snapshot(**(seen | changed)))


def pool(found: PoolReading | None = None, **changed: Any) -> PoolLook:
    return replace(PoolLook("gpu", found or busy(), 0.8, HEARD), **changed)


def event(kind: str, *, name: str | None = None, seconds_ago: float = 0.0, **detail: Any) -> Event:
    return Event(START - timedelta(seconds=seconds_ago), kind, None if name else ID, name, detail)


def service(role: str) -> Service:
    return Service(role, f"{role}-1", "here", 7, START - HOUR, START, {})


def look(of: Batch | None = None, **changed: Any) -> Look:
    made = Look(
        batch=of or batch(),
        at=START,
        rate_per_second=0.8,
        forecast=forecast(),
        pools=(pool(),),
        events=(
            event("limit", name="gpu", seconds_ago=20, **{"from": "floor", "to": "shared", "reason": WHY}),
            event("pace", seconds_ago=900, **{"from": "at_risk", "to": "on_track"}),
            event("submitted", seconds_ago=6 * 3_600, added=40_000, reused=120, rejected=2),
        ),
        at_work=(service("scheduler"), service("worker"), service("worker")),
    )
    return replace(made, **changed)
