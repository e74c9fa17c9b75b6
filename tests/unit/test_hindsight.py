"""Forecasts judged by what came of them."""

from datetime import UTC, datetime, timedelta

from scheduler.hindsight import Foreseen, Judged, judge

BEGAN = datetime(2026, 11, 30, 22, 0, tzinfo=UTC)


def at(minutes: float) -> datetime:
    return BEGAN + timedelta(minutes=minutes)


def foreseen(minutes: float, tokens_left: float, p50: float, p90: float) -> Foreseen:
    return Foreseen(at(minutes), tokens_left, at(p50), at(p90))


def test_each_share_is_judged_by_the_time_that_was_left() -> None:
    forecasts = [
        foreseen(0, 1000, 60, 90),
        foreseen(20, 700, 110, 130),
        foreseen(40, 500, 94, 110),
        foreseen(70, 250, 97, 99),
    ]
    assert judge(forecasts, at(100)) == (
        Judged(0.25, 10 / 80, True),
        Judged(0.5, -6 / 60, True),
        Judged(0.75, -3 / 30, False),
    )


def test_the_first_after_a_share_counts() -> None:
    forecasts = [foreseen(0, 100, 50, 50), foreseen(10, 75, 44, 44), foreseen(11, 74, 40, 40)]
    assert judge(forecasts, at(40)) == (Judged(0.25, 4 / 30, True),)


def test_more_work_in_the_middle_moves_the_shares() -> None:
    forecasts = [
        foreseen(0, 100, 50, 50),
        foreseen(10, 60, 40, 40),
        foreseen(20, 200, 60, 60),
        foreseen(30, 90, 50, 50),
    ]
    assert [judged.done_share for judged in judge(forecasts, at(60))] == [0.25, 0.5]


def test_nothing_is_judged_where_nothing_was_foreseen() -> None:
    assert judge([], at(10)) == ()
    assert judge([foreseen(0, 100, 5, 5)], at(10)) == ()
    assert judge([foreseen(0, 100, 5, 5), foreseen(10, 0, 10, 10)], at(10)) == ()
    assert judge([foreseen(0, 100, 5, 5), foreseen(10, 10, 11, 11)], at(10)) == ()
