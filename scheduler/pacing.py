"""The pace of every open batch: forecasts, which are kept, and a word to people whenever the pace changes.

It reads what the pools show and what SQL says is left, and may stall without stopping the control loop.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from jobs.spec import ClassificationSpec
from jobs.store import batches, events, forecasts
from jobs.store.batches import BatchWork
from jobs.store.database import Database
from jobs.store.events import EventKind
from jobs.store.forecasts import StoredForecast
from scheduler.forecast import Forecast
from scheduler.load_meter import LoadMeter, MeanLoad
from scheduler.pace import Pace, PaceJudge
from scheduler.paced_pools import PacedPools
from scheduler.pool_reading import PoolReading
from scheduler.work import Work
from scheduler.work_unit import WorkUnit
from tickets_batch.settings import Pool

log = logging.getLogger(__name__)

BAD = (Pace.AT_RISK, Pace.WILL_MISS)

Tell = Callable[[Mapping[str, Any]], None]


@dataclass(slots=True)
class _Known:
    """A batch as it was seen last; `was_served`: it was the first in line."""

    unit: WorkUnit
    judge: PaceJudge
    pace: Pace | None
    total: int
    tokens_left: float
    seen_at: datetime
    was_served: bool = False


class Pacing:
    """Looks at the open batches now and then; `note` may be called from another thread meanwhile.

    `tell` gets each change of pace, as an object that JSON can hold.
    """

    def __init__(self, db: Database, pools: Sequence[Pool], zone: ZoneInfo, tell: Tell) -> None:
        self._db = db
        self._pools = {pool.name: pool for pool in pools}
        self._zone = zone
        self._tell = tell
        self._meter = LoadMeter()
        self._known: dict[str, _Known] = {}
        self._sets: dict[tuple[str, ...], PacedPools] = {}

    def note(self, readings: Sequence[PoolReading]) -> None:
        """Take in a look at every pool."""
        self._meter.add(readings)

    def look(self) -> list[StoredForecast]:
        """Forecast, keep and judge; the newest forecast of every open batch. Raises StoreUnavailable."""
        now = self._db.now()
        loads = self._meter.take()
        open_batches = batches.open_work(self._db)
        self._forget(work.id for work in open_batches)
        served = next((work.id for work in open_batches if work.is_at_work(now)), None)
        made, tokens_ahead = [], 0.0
        for work in open_batches:
            pools = self._set_of(work)
            if pools is None:
                continue
            known = self._know(work, pools, now)
            self._observe(known, work, pools, now, loads, is_served=work.id == served)
            if work.is_at_work(now) or work.is_waiting(now):
                forecast = pools.forecast(now, Work(known.tokens_left, tokens_ahead, work.not_before), work.deadline_at)
                made.append(self._keep(known, work, forecast, is_served=work.id == served))
                tokens_ahead += known.tokens_left
        return made

    # --- what was seen

    def _forget(self, still_open: Iterable[str]) -> None:
        for gone in self._known.keys() - set(still_open):
            del self._known[gone]
        if not self._known:
            self._sets.clear()  # the next night reads anew what is usual

    def _set_of(self, work: BatchWork) -> PacedPools | None:
        """None where the settings have none of its pools any more."""
        if work.pools not in self._sets:
            found = [self._pools[name] for name in work.pools if name in self._pools]
            if not found:
                return None
            unit, jobs = _unit(work), work.pending + work.running
            tokens_per_job = unit.tokens(jobs, work.text_bytes_left) / jobs if jobs else unit.tokens_per_job
            self._sets[work.pools] = PacedPools(self._db, found, self._zone, tokens_per_job)
        return self._sets[work.pools]

    def _know(self, work: BatchWork, pools: PacedPools, now: datetime) -> _Known:
        """What was known of it, by this scheduler or the one before."""
        if work.id not in self._known:
            unit = _unit(work)
            made = forecasts.of_batch(self._db, work.id)
            pools.restore(made)
            pace = Pace(made[-1].pace) if made and made[-1].pace else None
            tokens_left = unit.tokens(work.pending + work.running, work.text_bytes_left)
            self._known[work.id] = _Known(unit, PaceJudge(pace), pace, work.total, tokens_left, now)
        return self._known[work.id]

    def _observe(
        self,
        known: _Known,
        work: BatchWork,
        pools: PacedPools,
        now: datetime,
        loads: Mapping[str, MeanLoad],
        *,
        is_served: bool,
    ) -> None:
        """What was done since the last look, if it was this batch's turn all the time and nothing was added to it."""
        tokens_left = known.unit.tokens(work.pending + work.running, work.text_bytes_left)
        if is_served and known.was_served and work.total == known.total and tokens_left <= known.tokens_left:
            seconds = (now - known.seen_at).total_seconds()
            pools.observe(now, seconds, known.tokens_left - tokens_left, loads)
        known.total, known.tokens_left, known.seen_at = work.total, tokens_left, now
        known.was_served = is_served and work.started_at is not None

    # --- what is made of it

    def _keep(self, known: _Known, work: BatchWork, forecast: Forecast, *, is_served: bool) -> StoredForecast:
        pace = known.judge.judge(forecast) if work.deadline_at is not None else None
        floor, full = forecast.floor_rate, forecast.full_rate
        stored = StoredForecast(
            batch_id=work.id,
            at=forecast.at,
            jobs_left=work.pending + work.running,
            tokens_left=round(forecast.tokens_left),
            achieved_rate=forecast.achieved_rate if is_served else None,
            needed_rate=forecast.needed_rate,
            floor_rate=floor.tokens_per_second if floor else None,
            full_rate=full.tokens_per_second if full else None,
            chat_slots=forecast.chat_slots,
            p50_at=forecast.p50_at,
            p90_at=forecast.p90_at,
            floor_at=forecast.floor_at,
            pace=pace.value if pace else None,
        )
        forecasts.record(self._db, stored)
        if pace is not None and pace is not known.pace:
            self._change(known.pace, pace, work, stored)
        known.pace = pace
        return stored

    def _change(self, was: Pace | None, pace: Pace, work: BatchWork, forecast: StoredForecast) -> None:
        """Tell of it in the events, in the log, and where alerts go."""
        detail: dict[str, Any] = {
            "from": was.value if was else None,
            "to": pace.value,
            "deadline_at": _iso(work.deadline_at),
            "p50_at": _iso(forecast.p50_at),
            "p90_at": _iso(forecast.p90_at),
            "floor_at": _iso(forecast.floor_at),
            "jobs_left": forecast.jobs_left,
            "tokens_left": forecast.tokens_left,
            "needed_tokens_per_second": forecast.needed_rate,
            "achieved_tokens_per_second": forecast.achieved_rate,
        }
        events.record(self._db, EventKind.PACE, work.id, **detail)
        level = logging.WARNING if pace in BAD else logging.INFO
        log.log(level, "%s is %s: %d jobs left, deadline %s", work.id, pace, forecast.jobs_left, _iso(work.deadline_at))
        self._tell({"event": EventKind.PACE.value, "batch_id": work.id, "at": _iso(forecast.at), **detail})


def _unit(work: BatchWork) -> WorkUnit:
    return WorkUnit.of(ClassificationSpec.model_validate(work.spec))


def _iso(instant: datetime | None) -> str | None:
    return None if instant is None else instant.isoformat(timespec="seconds")
