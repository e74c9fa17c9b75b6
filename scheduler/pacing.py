"""The pace of every open batch: forecasts, which are kept, and a word to people whenever the pace changes.

It reads what the pools show and what SQL says is left, and may stall without stopping the control loop.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from jobs.spec import ClassificationSpec
from jobs.store import batches, events, forecasts, services, unanswered
from jobs.store.batches import BatchWork
from jobs.store.database import Database
from jobs.store.events import EventKind
from jobs.store.forecasts import StoredForecast
from scheduler.forecast import Forecast
from scheduler.load_meter import LoadMeter, MeanLoad
from scheduler.pace import SILENT_SECONDS, Pace, PaceJudge
from scheduler.paced_pools import PacedPools
from scheduler.pool_reading import PoolReading
from scheduler.turns import at_turn
from scheduler.work import Work
from scheduler.work_unit import WorkUnit
from tickets_batch.progress import duration
from tickets_batch.settings import Pool

log = logging.getLogger(__name__)

BAD = (Pace.AT_RISK, Pace.WILL_MISS)
KEPT = timedelta(hours=1)  # what was seen of pools, after the last batch: the next night reads anew what is usual

Tell = Callable[[Mapping[str, Any]], None]


@dataclass(slots=True)
class _Known:
    """A batch as it was seen last.

    `was_served`: it was its turn. `was_tried`: it was being worked on. `silent_seconds`: for so long it has
    been, and might hold a slot, without a ticket answered.
    """

    unit: WorkUnit
    judge: PaceJudge
    pace: Pace | None
    total: int
    tokens_left: float
    done: int
    seen_at: datetime
    was_served: bool = False
    was_tried: bool = False
    silent_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class _Silence:
    """For so long no ticket was answered of the batch that is worked on in a pool."""

    seconds: float
    batch_id: str


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
        self._was_open_at: datetime | None = None

    def note(self, readings: Sequence[PoolReading]) -> None:
        """Take in a look at every pool."""
        self._meter.add(readings)

    def look(self) -> list[StoredForecast]:
        """Forecast, keep and judge; the newest forecast of every open batch. Raises StoreUnavailable."""
        now = self._db.now()
        loads = self._meter.take()
        open_batches = batches.open_work(self._db)
        self._forget((work.id for work in open_batches), now)
        workers = len(services.alive(self._db, "worker"))
        turn = at_turn(work for work in open_batches if work.is_at_work(now))[: max(1, workers)]
        served = {work.id for work in turn}
        made: list[StoredForecast] = []
        ahead: list[tuple[tuple[str, ...], float]] = []  # pools and tokens of those that come before
        silences: dict[str, _Silence] = {}  # by pool
        for work in open_batches:
            pools = self._set_of(work)
            if pools is None:
                continue
            known = self._know(work, pools, now)
            self._observe(known, work, pools, now, loads, is_served=work.id in served)
            is_tried = work.is_at_work(now) and silences.keys().isdisjoint(work.pools)
            self._listen(known, work, now, loads, is_tried=is_tried)
            if work.is_at_work(now) or work.is_waiting(now):
                silence = _Silence(known.silent_seconds, work.id)
                if work.is_at_work(now):
                    if not is_tried:  # it waits for another, and is as silent as that
                        silence = min((silences.get(pool, silence) for pool in work.pools), key=lambda one: one.seconds)
                    silences = dict.fromkeys(work.pools, silence) | silences
                tokens_ahead = sum(tokens for others, tokens in ahead if not set(others).isdisjoint(work.pools))
                forecast = pools.forecast(now, Work(known.tokens_left, tokens_ahead, work.not_before), work.deadline_at)
                made.append(self._keep(known, work, forecast, silence, is_served=work.id in served))
                ahead.append((work.pools, known.tokens_left))
        return made

    # --- what was seen

    def _forget(self, still_open: Iterable[str], now: datetime) -> None:
        for gone in self._known.keys() - set(still_open):
            del self._known[gone]
        if self._known or self._was_open_at is None:
            self._was_open_at = now
        elif now - self._was_open_at > KEPT:
            self._sets.clear()

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
            pools.restore(work.id, made)
            pace = Pace(made[-1].pace) if made and made[-1].pace else None
            tokens_left = unit.tokens(work.pending + work.running, work.text_bytes_left)
            self._known[work.id] = _Known(unit, PaceJudge(pace), pace, work.total, tokens_left, work.done, now)
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
        known.total, known.tokens_left = work.total, tokens_left
        known.was_served = is_served and work.started_at is not None

    def _listen(
        self, known: _Known, work: BatchWork, now: datetime, loads: Mapping[str, MeanLoad], *, is_tried: bool
    ) -> None:
        """For how long no ticket was answered; a time in which batch might hold nothing is none of trying."""
        might_hold = any(name not in loads or loads[name].limit.slots for name in work.pools)
        if not is_tried or work.done != known.done:
            known.silent_seconds = 0.0
        elif known.was_tried and might_hold:
            known.silent_seconds += (now - known.seen_at).total_seconds()
        known.done, known.seen_at, known.was_tried = work.done, now, is_tried

    def _is_silent(self, work: BatchWork, seconds: float) -> bool:
        longest = [self._pools[name].request_timeout_seconds for name in work.pools if name in self._pools]
        return seconds >= max([SILENT_SECONDS, *longest])

    # --- what is made of it

    def _keep(
        self, known: _Known, work: BatchWork, forecast: Forecast, silence: _Silence, *, is_served: bool
    ) -> StoredForecast:
        silent = timedelta(seconds=silence.seconds) if self._is_silent(work, silence.seconds) else None
        pace = known.judge.judge(forecast, silent) if work.deadline_at is not None else None
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
            self._change(known.pace, pace, work, stored, silence if silent and pace in BAD else None)
        known.pace = pace
        return stored

    def _change(
        self,
        was: Pace | None,
        pace: Pace,
        work: BatchWork,
        forecast: StoredForecast,
        silence: _Silence | None,
    ) -> None:
        """Tell of it in the events, in the log, and where alerts go; with the reason where nothing is answered."""
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
        reason = ""
        if silence is not None:
            reason = detail["reason"] = self._reason(silence, work.id, forecast.at)
        events.record(self._db, EventKind.PACE, work.id, **detail)
        level = logging.WARNING if pace in BAD else logging.INFO
        why, due = f"; {reason}" if reason else "", _iso(work.deadline_at)
        log.log(level, "%s is %s: %d jobs left, deadline %s%s", work.id, pace, forecast.jobs_left, due, why)
        self._tell({"event": EventKind.PACE.value, "batch_id": work.id, "at": _iso(forecast.at), **detail})

    def _reason(self, silence: _Silence, batch_id: str, now: datetime) -> str:
        why = unanswered.why_silent(self._db, silence.batch_id, now - timedelta(seconds=silence.seconds))
        whose = "" if silence.batch_id == batch_id else f" of {silence.batch_id}, for which it waits,"
        return f"no ticket{whose} was answered for {duration(silence.seconds)}: {why}"


def _unit(work: BatchWork) -> WorkUnit:
    return WorkUnit.of(ClassificationSpec.model_validate(work.spec))


def _iso(instant: datetime | None) -> str | None:
    return None if instant is None else instant.isoformat(timespec="seconds")
