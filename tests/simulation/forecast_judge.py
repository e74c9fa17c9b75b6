"""How good the forecasts of a night were: replays its rows into the production forecaster and pace judge."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from statistics import median

from scheduler.forecast import Forecast, Forecaster
from scheduler.pace import Pace, PaceJudge
from scheduler.usual import UsualLoad
from scheduler.work import Work
from tests.simulation.forecast_nights import SITE, STARTS_AT, ZONE, Played, Stretch

MARKS = (0.25, 0.5, 0.75)  # of the work
EARLY_SHARE = 0.12  # of a batch's time in which every row is judged; then one in SELDOM
SELDOM = 12


@dataclass(frozen=True, slots=True)
class Miss:
    """How far a forecast was off, relative to the time that remained; positive: too late."""

    night: Played
    tickets: int
    mark: float
    p50: float
    p90: float


@dataclass(frozen=True, slots=True)
class Told:
    """A pace, and how many seconds after the start it was told."""

    after_seconds: float
    pace: Pace


@dataclass(frozen=True, slots=True)
class Sample:
    """A row of a night before, as it would have been stored."""

    at: datetime
    interactive_slots: int
    interactive_tokens: int
    reason: str


def usual_of(nights: Iterable[Sequence[Stretch]]) -> UsualLoad:
    """What is usual after these nights, the last one yesterday."""
    samples = []
    for days, rows in enumerate(reversed(list(nights)), 1):
        starts_at = STARTS_AT - timedelta(days=days)
        samples += [
            Sample(starts_at + timedelta(seconds=row.at), row.chat_slots, row.chat_tokens, row.rule) for row in rows
        ]
    return UsualLoad.of(samples, ZONE)


def batch_of(rows: Sequence[Stretch], tickets: int) -> Sequence[Stretch] | None:
    """The rows until so many tickets were done; None where the night was too short for them."""
    done = 0
    for number, row in enumerate(rows, 1):
        done += row.tickets
        if done >= tickets:
            return rows[:number]
    return None


def misses(night: Played, rows: Sequence[Stretch], tickets: int, usual: UsualLoad | None) -> Iterator[Miss]:
    """The forecasts at MARKS of the work of a batch that was done with the last of `rows`."""
    whole, end = sum(row.tokens for row in rows), rows[-1].at
    forecaster, done, marks = Forecaster(SITE.capacity, usual), 0, list(MARKS)
    for row in rows:
        forecaster.observe(row.observation())
        done += row.tokens
        if marks and done >= marks[0] * whole:
            now = STARTS_AT + timedelta(seconds=row.at)
            forecast = forecaster.forecast(now, Work(whole - done), None, _always)
            remaining = end - row.at
            yield Miss(
                night,
                tickets,
                marks.pop(0),
                _after(forecast.p50_at, now) / remaining - 1,
                _after(forecast.p90_at, now) / remaining - 1,
            )


def forecasts(rows: Sequence[Stretch], usual: UsualLoad | None) -> list[Forecast]:
    """Those along a batch that was done with the last of `rows`: all at first, later one in two minutes."""
    whole, end = sum(row.tokens for row in rows), rows[-1].at
    forecaster, done, found = Forecaster(SITE.capacity, usual), 0, []
    for number, row in enumerate(rows):
        forecaster.observe(row.observation())
        done += row.tokens
        if row.at <= EARLY_SHARE * end or number % SELDOM == 0:
            now = STARTS_AT + timedelta(seconds=row.at)
            found.append(forecaster.forecast(now, Work(whole - done), None, _always))
    return found


def told(found: Iterable[Forecast], deadline_seconds: float) -> list[Told]:
    """Each change of pace that a batch with these forecasts would have been told of before its deadline."""
    judge, deadline_at = PaceJudge(), STARTS_AT + timedelta(seconds=deadline_seconds)
    changes: list[Told] = []
    for forecast in found:
        if forecast.at >= deadline_at:
            break
        pace = judge.judge(replace(forecast, deadline_at=deadline_at))
        if pace is not None and (not changes or changes[-1].pace is not pace):
            changes.append(Told((forecast.at - STARTS_AT).total_seconds(), pace))
    return changes


def median_miss(found: Iterable[Miss]) -> float:
    """The median absolute error of p50."""
    return median(abs(miss.p50) for miss in found)


def coverage(found: Sequence[Miss]) -> float:
    """The share of outcomes not after p90."""
    return sum(miss.p90 >= 0 for miss in found) / len(found)


def _after(at: datetime | None, now: datetime) -> float:
    return float("inf") if at is None else (at - now).total_seconds()


def _always(at: datetime) -> bool:
    return True
