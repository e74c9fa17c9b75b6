"""The pools of a batch as its forecast sees them: together, with what is usual there and what was measured before."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

from jobs.store import curves, samples
from jobs.store.database import Database
from jobs.store.forecasts import StoredForecast
from jobs.store.samples import LoadSample
from scheduler.capacity import Amount, PoolCapacity, total
from scheduler.curve import Curve, UnreadableCurve
from scheduler.forecast import Forecast, Forecaster
from scheduler.hours import SharedHours
from scheduler.load_meter import MeanLoad
from scheduler.observation import Observation
from scheduler.pools import capacity_of
from scheduler.rates import NO_RATES, KnownRates
from scheduler.speed import PoolSpeed
from scheduler.usual import ChatLevel, UsualLoad
from scheduler.work import Work
from tickets_batch.settings import Pool

USUAL_DAYS = 14  # of samples, of which newer nights weigh more
LONGEST_SECONDS = 60.0  # between two looks: what happened in a longer time is no observation


class PacedPools:
    """One forecaster for a set of pools. What an hour is usually like is read once, when it is made."""

    def __init__(self, db: Database, pools: Sequence[Pool], zone: ZoneInfo, tokens_per_job: float) -> None:
        self._db = db
        self._pools = pools
        self._made_at = db.now()
        self._restored: set[str] = set()
        self._hours = [SharedHours.of(pool.shared_hours, zone) for pool in pools]
        self._capacity = _together(pools)
        usual = _usual(db, pools, zone)
        self._forecaster = Forecaster(self._capacity, usual, _known_rates(db, pools, tokens_per_job))

    def is_open(self, at: datetime) -> bool:
        """Whether batch may be above its floor in one of the pools."""
        return any(hours.is_open(at) for hours in self._hours)

    def observe(self, at: datetime, seconds: float, tokens: float, loads: Mapping[str, MeanLoad]) -> None:
        """Take in a stretch in which batch was at work, unless it is too long or a pool was not read in it."""
        found = [loads[pool.name] for pool in self._pools if pool.name in loads]
        if 0 < seconds <= LONGEST_SECONDS and len(found) == len(self._pools):
            self._forecaster.observe(
                Observation(
                    at,
                    seconds,
                    max(0, round(tokens)),
                    chat=total(load.chat for load in found),
                    held=total(load.held for load in found),
                    limit=total(load.limit for load in found),
                    is_open=self.is_open(at),
                )
            )

    def restore(self, batch_id: str, made: Sequence[StoredForecast]) -> None:
        """Take in, once, what another scheduler has seen tonight: its forecasts of a batch at work, in order."""
        made = [one for one in made if one.at < self._made_at]  # what is later was seen here
        if len(made) < 2 or batch_id in self._restored:
            return
        self._restored.add(batch_id)
        since, until = made[0].at, made[-1].at + timedelta(seconds=1)
        stored = {pool.name: samples.between(self._db, pool.name, since, until) for pool in self._pools}
        for before, after in pairwise(made):
            if after.achieved_rate is None:
                continue  # it was another's turn
            loads = {name: load for name, seen in stored.items() if (load := _mean(seen, before.at, after.at))}
            seconds = (after.at - before.at).total_seconds()
            self.observe(after.at, seconds, before.tokens_left - after.tokens_left, loads)

    def forecast(self, now: datetime, work: Work, deadline_at: datetime | None) -> Forecast:
        """When the work will be done."""
        return self._forecaster.forecast(now, work, deadline_at, self.is_open)


def _together(pools: Sequence[Pool]) -> PoolCapacity:
    capacities = [capacity_of(pool) for pool in pools]
    return PoolCapacity(
        total(one.total for one in capacities),
        total(one.protected_interactive for one in capacities),
        total(one.floor for one in capacities),
    )


def _usual(db: Database, pools: Sequence[Pool], zone: ZoneInfo) -> UsualLoad:
    """The chat of all of them together, in the half hours in which any was seen."""
    until = db.now()
    since = until - timedelta(days=USUAL_DAYS)
    found = [UsualLoad.of(samples.between(db, pool.name, since, until), zone) for pool in pools]
    levels: dict[int, ChatLevel] = {}
    for one in found:
        for number, level in one.bins.items():
            other = levels.get(number, ChatLevel(0.0, 0.0))
            levels[number] = ChatLevel(level.slots + other.slots, level.tokens + other.tokens)
    return UsualLoad(zone, levels)


def _known_rates(db: Database, pools: Sequence[Pool], tokens_per_job: float) -> KnownRates:
    """From the curves of these pools, if each has one; in tokens of which a job has so many."""
    floor = full = 0.0
    for pool in pools:
        stored = curves.latest(db, pool.name)
        if stored is None or stored.model != pool.model:
            return NO_RATES
        try:
            speed = PoolSpeed(Curve.from_json(stored.detail), capacity_of(pool))
        except UnreadableCurve:
            return NO_RATES
        floor += speed.floor * tokens_per_job
        full += speed.full * tokens_per_job
    return KnownRates(floor, full)


def _mean(seen: Sequence[LoadSample], after: datetime, until: datetime) -> MeanLoad | None:
    """Of the samples in a stretch, or the first after it: they may come more seldom than forecasts."""
    found = [one for one in seen if after < one.at <= until] or [one for one in seen if one.at > until][:1]
    if not found:
        return None
    return MeanLoad.of(
        (
            Amount(one.interactive_slots, one.interactive_tokens),
            Amount(one.batch_slots, one.batch_tokens),
            Amount(one.limit_slots, one.limit_tokens),
        )
        for one in found
    )
