"""How a batch stands against its deadline, and when that is worth telling: pure.

A turn for the worse is told once it has stood for some seconds, one for the better only when it has stood for minutes
with room to spare: whoever was woken should not hear a moment later that it was nothing.
"""

from datetime import datetime, timedelta
from enum import StrEnum

from scheduler.forecast import Forecast

WORSE_AFTER = timedelta(seconds=20)  # a turn for the worse must stand for so long
RISK_SHARE = 0.01  # of the time left that a risk must stand: every forecast is wide in its first minutes
BETTER_AFTER = timedelta(seconds=300)  # and one for the better
SILENT_SECONDS = 60.0  # without an answer, three times what a first forecast needs: then it tells something
SPARE = 0.05  # of the time left, between a finish and the deadline, before it counts as better


class Pace(StrEnum):
    """How a batch stands, from best to worst."""

    GUARANTEED = "guaranteed"  # the floor alone suffices
    ON_TRACK = "on_track"  # nine times in ten it is done by the deadline
    AT_RISK = "at_risk"  # the p90 of the forecast is after the deadline
    WILL_MISS = "will_miss"  # even the full limit from now on would not do

    def is_worse_than(self, other: "Pace | None") -> bool:
        """True when it comes later in the order; anything is worse than nothing told yet."""
        return other is None or _ORDER.index(self) > _ORDER.index(other)


_ORDER = tuple(Pace)


class PaceJudge:
    """Follows the forecasts of one batch. `told`: what a scheduler before this one said last."""

    def __init__(self, told: Pace | None = None) -> None:
        self._told = told
        self._as_bad_since: dict[Pace, datetime] = {}
        self._as_good_since: dict[Pace, datetime] = {}

    @property
    def told(self) -> Pace | None:
        """The pace as last told; None: nothing is known yet, or there is no deadline."""
        return self._told

    def judge(self, forecast: Forecast, silent: timedelta | None = None) -> Pace | None:
        """Take in a forecast, in the order of time; returns what is to be told now, which mostly is what was told.

        `silent` as for `pace_of`.
        """
        if forecast.deadline_at is None:
            self._told = None
            self._as_bad_since.clear()
            self._as_good_since.clear()
        seen = pace_of(forecast, silent=silent)
        if seen is None:
            return self._told
        with_spare = pace_of(forecast, SPARE, silent) or seen
        for pace in Pace:
            _keep(self._as_bad_since, pace, not pace.is_worse_than(seen), forecast.at)
            _keep(self._as_good_since, pace, not with_spare.is_worse_than(pace), forecast.at)
        worse = [
            pace
            for pace in Pace
            if pace.is_worse_than(self._told)
            and _has_stood(self._as_bad_since, pace, forecast.at, _worse_after(pace, forecast))
        ]
        better = [
            pace
            for pace in Pace
            if _is_better(pace, self._told) and _has_stood(self._as_good_since, pace, forecast.at, BETTER_AFTER)
        ]
        if worse and (self._told is not None or worse[-1] is seen):  # the first thing told is what is seen, or nothing
            self._told = worse[-1]
        elif better:
            self._told = better[0]
        return self._told


def pace_of(forecast: Forecast, spare: float = 0.0, silent: timedelta | None = None) -> Pace | None:
    """The pace that one forecast shows, with `spare` of the time left to be kept; None: not known, or no deadline.

    `silent`: for so long no ticket was answered that no rate of before speaks for the batch any more. It is at risk
    then, and will miss its deadline once it was silent for as long as there is left.
    """
    if forecast.deadline_at is None:
        return None
    if forecast.tokens_left <= 0:
        return Pace.GUARANTEED
    if forecast.at >= forecast.deadline_at:
        return Pace.WILL_MISS
    if silent is not None and silent >= forecast.deadline_at - forecast.at:
        return Pace.WILL_MISS
    foreseen = _foreseen(forecast, forecast.deadline_at - spare * (forecast.deadline_at - forecast.at))
    return Pace.AT_RISK if silent is not None and foreseen is not Pace.WILL_MISS else foreseen


def _foreseen(forecast: Forecast, until: datetime) -> Pace | None:
    if forecast.full_rate is not None and _is_after(forecast.full_at, until):
        return Pace.WILL_MISS
    if not _is_after(forecast.floor_at, until):
        return Pace.GUARANTEED
    if forecast.full_rate is None and forecast.p90_at is None:
        return None
    return Pace.AT_RISK if _is_after(forecast.p90_at, until) else Pace.ON_TRACK


def _is_after(at: datetime | None, until: datetime) -> bool:
    return at is None or at > until


def _is_better(pace: Pace, told: Pace | None) -> bool:
    return told is not None and told.is_worse_than(pace)


def _worse_after(pace: Pace, forecast: Forecast) -> timedelta:
    """For how long it must have been so bad before it is told."""
    if pace is not Pace.AT_RISK or forecast.deadline_at is None:
        return WORSE_AFTER
    return max(WORSE_AFTER, RISK_SHARE * (forecast.deadline_at - forecast.at))


def _has_stood(since: dict[Pace, datetime], pace: Pace, at: datetime, wait: timedelta) -> bool:
    return pace in since and at - since[pace] >= wait


def _keep(since: dict[Pace, datetime], pace: Pace, holds: bool, at: datetime) -> None:
    if holds:
        since.setdefault(pace, at)
    else:
        since.pop(pace, None)
