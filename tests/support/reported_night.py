"""A night in the database, as a scheduler and workers would have left it: tickets, samples, forecasts and events."""

import math
import random
from datetime import datetime, timedelta

from jobs.job import Finish, Job
from jobs.outcomes import Failed, Outcome, Succeeded, Symptom
from jobs.store import claims, events, finishes, forecasts, samples
from jobs.store.database import Database
from jobs.store.events import EventKind
from jobs.store.forecasts import StoredForecast
from jobs.store.samples import LoadSample
from scheduler.holdout import is_held_out
from scheduler.limit import Rule
from tests.support.store import START, ManualClock, attempt, submit
from tickets_batch.settings import Pool

LABELS = ("shipping", "billing", "returns & $20 refunds", "Straße <технический> 技術")
CHUNK = 500
GPU = Pool.model_validate(
    {
        "name": "gpu",
        "base_url": "http://127.0.0.1:9/v1",
        "model": "test-model",
        "cost_per_hour": 2.5,
        "capacity": {"slots": 20, "tokens": 60_000},
        "protected": {"interactive": {"slots": 8, "tokens": 24_000}, "batch": {"slots": 2, "tokens": 6_000}},
    }
)


def reported_night(
    db: Database, clock: ManualClock, *, tickets: int, hours: float, pools: tuple[str, ...] = ("gpu",), seed: int = 1
) -> str:
    """A batch that is done after nine tenths of the hours to its deadline; most of its tickets got a label."""
    rng = random.Random(seed)
    clock.instant = START
    deadline_at = START + timedelta(hours=hours)
    labels = dict.fromkeys(LABELS, "")
    batch_id = submit(
        db, tickets, deadline_at=deadline_at, pools=pools, spec={"labels": labels}, model="qwen2.5-7b-instruct"
    ).batch_id
    seconds = 0.9 * hours * 3600
    done = 0
    while held := claims.claim(db, batch_id, CHUNK, "worker-1", 3600.0):
        done += len(held)
        clock.instant = START + timedelta(seconds=seconds * done / tickets)
        finishes.write(db, [_finish(job, rng, clock.instant) for job in held])
    for pool in pools:
        samples.record(db, [_sample(pool, step, rng) for step in range(1, int(seconds // 10) + 1)])
    for step in range(int(seconds // 60)):
        forecasts.record(db, _forecast(batch_id, START + timedelta(seconds=60 * step), seconds, tickets, deadline_at))
    clock.instant = START + timedelta(minutes=10)
    events.record(db, EventKind.PACE, batch_id, **{"from": "on_track", "to": "at_risk"})
    clock.instant = START + timedelta(hours=hours + 1)
    return batch_id


def _finish(job: Job, rng: random.Random, at: datetime) -> Finish:
    outcome: Outcome
    if (draw := rng.random()) < 0.98:
        label = LABELS[min(3, int(rng.expovariate(0.9)))]
        outcome, made = Succeeded(label), attempt(label=label, started_at=at)
    elif draw < 0.99:
        outcome, made = Failed("invalid_output: empty"), attempt(Symptom.INVALID_OUTPUT, started_at=at)
    else:
        outcome, made = Failed("too_long: 9,000 tokens"), attempt(Symptom.TOO_LONG, started_at=at)
    return Finish(job, outcome, made)


def _sample(pool: str, step: int, rng: random.Random) -> LoadSample:
    at = START + timedelta(seconds=10 * step)
    chat = max(0, round(5 + 4 * math.sin(step / 90) + rng.gauss(0, 1.5)))
    held_out = is_held_out(pool, at, 0.02)
    limit = 2 if held_out else max(2, 19 - round(1.3 * chat))
    arrivals = max(0, round(rng.gauss(10 + chat, 3)))
    return LoadSample(
        pool=pool,
        at=at,
        limit_slots=limit,
        limit_tokens=3000 * limit,
        batch_slots=max(0, limit - rng.randrange(2)),
        batch_tokens=2500 * limit,
        interactive_slots=chat,
        interactive_tokens=600 * chat,
        interactive_waiting=0,
        interactive_arrivals=arrivals,
        interactive_refused=0,
        revoked=rng.randrange(2),
        ttft_seconds=(0.2 + 0.02 * chat + 0.004 * limit) * rng.lognormvariate(0, 0.3) if arrivals else None,
        reading_age_seconds=0.5,
        reason=Rule.HOLDOUT if held_out else Rule.HEADROOM,
    )


def _forecast(batch_id: str, at: datetime, seconds: float, tickets: int, deadline_at: datetime) -> StoredForecast:
    gone = (at - START).total_seconds()
    p50_at = START + timedelta(seconds=seconds + 0.1 * (seconds - gone) * math.cos(gone / 3000))
    return StoredForecast(
        batch_id=batch_id,
        at=at,
        jobs_left=round(tickets * (1 - gone / seconds)),
        tokens_left=round(510 * tickets * (1 - gone / seconds)),
        achieved_rate=510 * tickets / seconds,
        needed_rate=510 * tickets / (deadline_at - START).total_seconds(),
        floor_rate=None,
        full_rate=None,
        chat_slots=5.0,
        p50_at=p50_at,
        p90_at=p50_at + timedelta(seconds=0.05 * (seconds - gone)),
        floor_at=None,
        pace="on_track",
    )
