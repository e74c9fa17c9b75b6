"""A night with its forecasts: the production forecaster and judge say now and then what they would say then."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from scheduler.forecast import Forecast, Forecaster
from scheduler.observation import Observation
from scheduler.pace import Pace, PaceJudge
from scheduler.simulation.night import Night, Outcome, Row, play
from scheduler.work import Work

# Production forecasts with every row; but the later in the night, the more a forecast takes, and the less it changes.
FORECAST_SECONDS = 60.0
FORECAST_SHARE = 0.02  # of the time since the start, where that is more


@dataclass(frozen=True, slots=True)
class Told:
    """A forecast and what is told of the pace by it; None where nothing is known yet."""

    forecast: Forecast
    pace: Pace | None


def play_paced(night: Night, on_row: Callable[[Row], None] | None = None) -> tuple[Outcome, list[Told]]:
    """Play the night with its forecasts, as on a first night, of whose like nothing is stored; none without a deadline.

    `on_row` is called as by `night.play`. Raises ValueError as that does.
    """
    forecaster, judge = Forecaster(night.site.capacity), PaceJudge()
    told: list[Told] = []

    def look(row: Row) -> None:
        if on_row is not None:
            on_row(row)
        if night.deadline_at is None:
            return
        is_open = night.hours.is_open
        forecaster.observe(Observation(row.at, row.seconds, row.tokens, row.chat, row.held, row.limit, is_open(row.at)))
        since = (row.at - (told[-1].forecast.at if told else night.starts_at)).total_seconds()
        if since >= max(FORECAST_SECONDS, FORECAST_SHARE * (row.at - night.starts_at).total_seconds()):
            forecast = forecaster.forecast(row.at, Work(row.tokens_left), night.deadline_at, is_open)
            told.append(Told(forecast, judge.judge(forecast)))

    return play(night, look), told


def changes(told: Sequence[Told]) -> list[Told]:
    """Those by which the pace became another, the first word of it included."""
    found: list[Told] = []
    for one in told:
        if one.pace is not None and (not found or found[-1].pace is not one.pace):
            found.append(one)
    return found
