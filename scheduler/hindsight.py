"""How good the forecasts of a batch were, once it has ended: pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

SHARES = (0.25, 0.5, 0.75)  # of the work, where the forecasts are judged


@dataclass(frozen=True, slots=True)
class Foreseen:
    """A forecast, with what was left of the work and when it was to be done."""

    at: datetime
    tokens_left: float
    p50_at: datetime
    p90_at: datetime


@dataclass(frozen=True, slots=True)
class Judged:
    """The first forecast after a share of the work was done.

    `error_share` is how much too late (above 0) or too early its p50 was, as a share of the time that was left then;
    `in_p90`: the work was done by its p90.
    """

    done_share: float
    error_share: float
    in_p90: bool


def judge(forecasts: Sequence[Foreseen], finished_at: datetime) -> tuple[Judged, ...]:
    """The forecasts, in order, at each of SHARES that they reached while something was left."""
    most = max((forecast.tokens_left for forecast in forecasts), default=0.0)
    found = []
    for share in SHARES:
        reached = (one for one in forecasts if 0 < one.tokens_left <= most * (1 - share))
        forecast = next(reached, None)
        if forecast is not None and (left_seconds := (finished_at - forecast.at).total_seconds()) > 0:
            error_seconds = (forecast.p50_at - finished_at).total_seconds()
            found.append(Judged(share, error_seconds / left_seconds, finished_at <= forecast.p90_at))
    return tuple(found)
