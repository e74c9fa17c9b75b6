"""States against the deadline: what each forecast shows, and how turns are told."""

from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.forecast import Forecast
from scheduler.pace import BETTER_AFTER, WORSE_AFTER, Pace, PaceJudge, pace_of
from scheduler.rates import Rate, RateSource

START = datetime(2026, 11, 30, 22, 0, tzinfo=UTC)
DEADLINE = START + timedelta(hours=9)
RATE = Rate(100.0, RateSource.MEASURED)
GUARANTEED, ON_TRACK, AT_RISK, WILL_MISS = Pace


class Ends(NamedTuple):
    """When a batch is done, in hours from the start; None: never."""

    floor: float | None
    p90: float | None
    full: float | None


def forecast(
    ends: Ends,
    *,
    after: timedelta = timedelta(0),
    deadline_at: datetime | None = DEADLINE,
    tokens_left: float = 1e6,
    full_rate: Rate | None = RATE,
) -> Forecast:
    def instant(hours: float | None) -> datetime | None:
        return None if hours is None else START + timedelta(hours=hours)

    return Forecast(
        at=START + after,
        tokens_left=tokens_left,
        deadline_at=deadline_at,
        achieved_rate=None,
        needed_rate=None,
        floor_rate=RATE,
        full_rate=full_rate,
        chat_slots=None,
        p50_at=instant(ends.p90),
        p90_at=instant(ends.p90),
        floor_at=instant(ends.floor),
        full_at=instant(ends.full),
    )


SHOWS = {
    GUARANTEED: Ends(floor=8.5, p90=5.0, full=3.0),
    ON_TRACK: Ends(floor=20.0, p90=8.5, full=6.0),
    AT_RISK: Ends(floor=30.0, p90=9.5, full=8.0),
    WILL_MISS: Ends(floor=40.0, p90=12.0, full=9.1),
}
CLEARLY_ON_TRACK = Ends(floor=20.0, p90=7.0, full=5.0)


@pytest.mark.parametrize("pace", Pace)
def test_what_a_forecast_shows(pace: Pace) -> None:
    assert pace_of(forecast(SHOWS[pace])) is pace


def test_a_finish_that_never_comes_is_after_the_deadline() -> None:
    assert pace_of(forecast(Ends(None, None, 8.0))) is AT_RISK
    assert pace_of(forecast(Ends(None, None, None))) is WILL_MISS


def test_without_a_deadline_there_is_no_pace() -> None:
    assert pace_of(forecast(Ends(8.0, 5.0, 3.0), deadline_at=None)) is None


def test_before_anything_is_known_nothing_is_said_unless_the_floor_suffices() -> None:
    assert pace_of(forecast(Ends(30.0, None, None), full_rate=None)) is None
    assert pace_of(forecast(Ends(8.0, None, None), full_rate=None)) is GUARANTEED


def test_a_long_silence_is_a_risk_whatever_was_known() -> None:
    silent = timedelta(minutes=2)
    assert pace_of(forecast(Ends(30.0, None, None), full_rate=None), silent=silent) is AT_RISK
    assert pace_of(forecast(SHOWS[GUARANTEED]), silent=silent) is AT_RISK
    assert pace_of(forecast(SHOWS[WILL_MISS]), silent=silent) is WILL_MISS


def test_a_silence_as_long_as_the_time_left_misses_the_deadline() -> None:
    nothing = Ends(None, None, None)
    just = timedelta(hours=4.5)
    assert pace_of(forecast(nothing, after=just, full_rate=None), silent=just - timedelta(seconds=1)) is AT_RISK
    assert pace_of(forecast(nothing, after=just, full_rate=None), silent=just) is WILL_MISS


def test_a_silence_is_told_once_it_has_stood_and_its_end_only_after_minutes() -> None:
    judge, silent = PaceJudge(GUARANTEED), timedelta(minutes=2)
    shown = SHOWS[GUARANTEED]._replace(floor=6.0)
    told = [judge.judge(forecast(shown, after=timedelta(seconds=second)), silent) for second in range(0, 340, 10)]
    assert told == [GUARANTEED] * 2 + [ON_TRACK] * 31 + [AT_RISK]  # a hundredth of nine hours
    assert tell(judge, GUARANTEED, 340, 640, shown) == [AT_RISK] * 30 + [GUARANTEED]


def test_with_nothing_left_it_is_done() -> None:
    assert pace_of(forecast(Ends(None, None, None), tokens_left=0.0)) is GUARANTEED


def test_work_left_at_the_deadline_has_missed_it() -> None:
    assert pace_of(forecast(SHOWS[GUARANTEED], after=timedelta(hours=9))) is WILL_MISS


def tell(judge: PaceJudge, pace: Pace, first: int, last: int, ends: Ends | None = None) -> list[Pace | None]:
    """What is told from one second to another, a forecast each ten."""
    shown = ends or SHOWS[pace]
    return [judge.judge(forecast(shown, after=timedelta(seconds=second))) for second in range(first, last + 1, 10)]


def test_the_first_pace_is_told_once_it_has_stood() -> None:
    assert tell(PaceJudge(), ON_TRACK, 0, 30) == [None, None, ON_TRACK, ON_TRACK]


def test_a_turn_for_the_worse_is_told_within_half_a_minute() -> None:
    judge = PaceJudge(ON_TRACK)
    assert tell(judge, WILL_MISS, 0, 20) == [ON_TRACK, ON_TRACK, WILL_MISS]


def test_a_risk_is_told_the_sooner_the_nearer_the_deadline() -> None:
    """Early in a night every forecast is wide, and there is time."""
    early, late = PaceJudge(ON_TRACK), PaceJudge(ON_TRACK)
    assert tell(early, AT_RISK, 0, 330) == [ON_TRACK] * 33 + [AT_RISK]  # nine hours before it
    assert tell(late, AT_RISK, 32_000, 32_020) == [ON_TRACK, ON_TRACK, AT_RISK]  # seven minutes before it


def test_nothing_better_is_told_first_while_a_risk_must_stand() -> None:
    assert tell(PaceJudge(), AT_RISK, 0, 330) == [None] * 33 + [AT_RISK]


def test_a_moment_is_no_turn() -> None:
    judge = PaceJudge(ON_TRACK)
    for second in range(0, 600, 20):
        assert tell(judge, WILL_MISS, second, second) == [ON_TRACK]
        assert tell(judge, ON_TRACK, second + 10, second + 10) == [ON_TRACK]


def test_what_stood_is_told_and_not_the_worst_moment_of_it() -> None:
    judge = PaceJudge(ON_TRACK)
    assert set(tell(judge, AT_RISK, 0, 310)) == {ON_TRACK}
    assert tell(judge, WILL_MISS, 320, 340) == [ON_TRACK, AT_RISK, WILL_MISS]


def test_a_turn_for_the_better_must_stand_for_minutes() -> None:
    judge = PaceJudge(AT_RISK)
    told = tell(judge, ON_TRACK, 0, 300, CLEARLY_ON_TRACK)
    assert told == [AT_RISK] * 30 + [ON_TRACK]


def test_better_by_a_hair_is_not_better() -> None:
    judge = PaceJudge(AT_RISK)
    assert set(tell(judge, ON_TRACK, 0, 1200, SHOWS[ON_TRACK]._replace(p90=8.99))) == {AT_RISK}


def test_two_steps_at_once_when_both_have_stood() -> None:
    assert tell(PaceJudge(WILL_MISS), GUARANTEED, 0, 300, SHOWS[GUARANTEED]._replace(floor=6.0))[-1] is GUARANTEED


def test_a_deadline_that_is_taken_away_ends_it() -> None:
    judge = PaceJudge(AT_RISK)
    assert judge.judge(forecast(SHOWS[AT_RISK], deadline_at=None)) is None
    assert judge.told is None


@given(st.lists(st.tuples(st.sampled_from(Pace), st.integers(1, 200)), max_size=60))
def test_it_never_flaps_faster_than_it_must_stand(turns: list[tuple[Pace, int]]) -> None:
    judge, second = PaceJudge(), 0
    changes: list[tuple[timedelta, Pace]] = []
    for pace, seconds in turns:
        for _ in range(max(1, seconds // 10)):
            after = timedelta(seconds=second)
            told = judge.judge(forecast(SHOWS[pace], after=after))
            if told is not None and (not changes or changes[-1][1] is not told):
                changes.append((after, told))
            second += 10
    for number in range(1, len(changes)):
        (before, was), (at, became) = changes[number - 1], changes[number]
        is_worse = became.is_worse_than(was)
        if not is_worse:
            assert at - before >= BETTER_AFTER or (number > 1 and was.is_worse_than(became))
        if number > 1 and is_worse != was.is_worse_than(changes[number - 2][1]):  # it turned round
            assert at - before >= (WORSE_AFTER if is_worse else BETTER_AFTER)
