"""When a batch will be done: known nights, work ahead, closed hours, pauses, and what holds on any night."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.capacity import Amount, PoolCapacity
from scheduler.forecast import Forecast, Forecaster
from scheduler.observation import Observation
from scheduler.rates import KnownRates
from scheduler.usual import UsualLoad
from scheduler.work import Work

CAPACITY = PoolCapacity(Amount(20, 60_000), Amount(8, 24_000), Amount(2, 6_000))
MOST = Amount(12, 36_000)
START = datetime(2026, 11, 30, 22, 0, tzinfo=UTC)
HOUR = timedelta(hours=1)


def always(at: datetime) -> bool:
    return True


class Night:
    """Stretches of ten seconds from START on, told to a forecaster."""

    def __init__(self, usual: UsualLoad | None = None, known: KnownRates | None = None) -> None:
        self.forecaster = Forecaster(CAPACITY, usual, known) if known else Forecaster(CAPACITY, usual)
        self.now = START

    def go(
        self, hours: float, tokens: Callable[[], int], held: int = 6, chat: int = 10, is_open: bool = True
    ) -> "Night":
        """Go on for so long with so many tokens in each stretch."""
        limit = MOST if is_open else CAPACITY.floor
        for _ in range(round(hours * 360)):
            self.now += timedelta(seconds=10)
            self.forecaster.observe(
                Observation(
                    self.now, 10.0, tokens(), Amount(chat, chat * 700), Amount(held, held * 500), limit, is_open
                )
            )
        return self

    def forecast(
        self,
        tokens_left: float,
        *,
        tokens_ahead: float = 0.0,
        not_before: datetime | None = None,
        deadline_at: datetime | None = None,
        is_open: Callable[[datetime], bool] = always,
    ) -> Forecast:
        return self.forecaster.forecast(self.now, Work(tokens_left, tokens_ahead, not_before), deadline_at, is_open)

    def p50_hours(self, tokens_left: float, **other: float) -> float:
        return hours(self.now, self.forecast(tokens_left, **other).p50_at)  # type: ignore[arg-type]


def hours(since: datetime, at: datetime | None) -> float:
    assert at is not None
    return (at - since) / HOUR


def steady(rate: float) -> Callable[[], int]:
    return lambda: round(rate * 10)


def noisy(rate: float, seed: int = 1) -> Callable[[], int]:
    """Stretches that scatter by 30%, each made up for by the next."""
    rng = random.Random(seed)
    owed: list[float] = []

    def tokens() -> int:
        if owed:
            return round(owed.pop() * 10)
        drawn = min(max(0.0, rng.gauss(rate, rate * 0.3)), 2 * rate)
        owed.append(2 * rate - drawn)
        return round(drawn * 10)

    return tokens


# --- nights whose end is known


def test_a_night_that_goes_on_as_it_was() -> None:
    night = Night().go(1, noisy(500))
    forecast = night.forecast(500 * 4 * 3600)
    assert hours(night.now, forecast.p50_at) == pytest.approx(4.0, rel=0.03)
    assert 4.0 < hours(night.now, forecast.p90_at) < 4.6
    assert forecast.achieved_rate == pytest.approx(500, rel=0.1)
    assert forecast.chat_slots == 10.0


def test_before_anything_was_seen_nothing_is_said() -> None:
    forecast = Night().forecast(1e6, deadline_at=START + 10 * HOUR)
    assert (forecast.p50_at, forecast.p90_at, forecast.floor_at, forecast.full_at) == (None, None, None, None)
    assert forecast.achieved_rate is None
    assert forecast.needed_rate == pytest.approx(1e6 / 36_000)


def test_a_curve_of_another_day_says_something_at_once() -> None:
    forecast = Night(known=KnownRates(floor=100.0, full=900.0)).forecast(500 * 4 * 3600)
    assert hours(START, forecast.p50_at) == pytest.approx(4.0, rel=0.05)
    assert hours(START, forecast.p90_at) > 6.0
    assert hours(START, forecast.full_at) == pytest.approx(2.22, rel=0.01)
    assert hours(START, forecast.floor_at) == pytest.approx(20.0, rel=0.01)


def test_the_first_minutes_are_wide_and_the_first_hour_is_not() -> None:
    early, late = Night().go(0.05, noisy(500)), Night().go(1, noisy(500))
    width = [
        hours(night.now, night.forecast(7e6).p90_at) / hours(night.now, night.forecast(7e6).p50_at) - 1
        for night in (early, late)
    ]
    assert width[0] > 1.5 * width[1]


def test_a_night_that_stepped_is_followed_within_a_quarter_of_an_hour() -> None:
    night = Night().go(3, noisy(500)).go(0.25, noisy(900))
    assert night.p50_hours(900 * 3 * 3600) == pytest.approx(3.0, rel=0.08)


def test_tokens_are_the_unit_so_longer_tickets_later_change_nothing() -> None:
    """Ten small tickets a stretch at first, one large one in the end: as many tokens."""
    night = Night().go(1, noisy(500)).go(1, lambda: 5000)
    assert night.p50_hours(500 * 2 * 3600) == pytest.approx(2.0, rel=0.05)


def test_what_is_done_even_if_the_chat_never_rests() -> None:
    night = Night().go(1, noisy(600))  # 100 for each of the slots held, two of which are the floor
    forecast = night.forecast(200 * 5 * 3600)
    assert 5.0 < hours(night.now, forecast.floor_at) < 5.5
    assert 0.7 < hours(night.now, forecast.full_at) < 5.0 / 6


def test_nothing_left_is_done_now() -> None:
    night = Night().go(0.5, steady(500))
    forecast = night.forecast(0.0, deadline_at=night.now + HOUR)
    assert {forecast.p50_at, forecast.p90_at, forecast.floor_at, forecast.full_at} == {night.now}
    assert forecast.needed_rate == 0.0


def test_a_rate_of_nothing_is_never_done() -> None:
    forecast = Night().go(0.5, steady(0), held=0).forecast(1e6)
    assert (forecast.p50_at, forecast.p90_at, forecast.full_at) == (None, None, None)


# --- other batches, hours and pauses


def test_batches_that_are_served_before_this_one_come_first() -> None:
    night = Night().go(1, noisy(500))
    assert night.p50_hours(500 * 3600, tokens_ahead=500 * 3 * 3600) == pytest.approx(4.0, rel=0.03)


def test_work_that_may_only_begin_later() -> None:
    night = Night().go(1, noisy(500))
    not_before = night.now + 6 * HOUR
    forecast = night.forecast(500 * 2 * 3600, not_before=not_before, deadline_at=not_before + 2 * HOUR)
    assert hours(night.now, forecast.p50_at) == pytest.approx(8.0, rel=0.03)
    assert forecast.needed_rate == pytest.approx(500)


@pytest.mark.parametrize(("ahead_hours", "end"), [(2, 8.0), (9, 11.0)])
def test_work_that_waits_for_its_time_and_for_others(ahead_hours: float, end: float) -> None:
    night = Night().go(1, noisy(500))
    forecast = night.forecast(500 * 2 * 3600, tokens_ahead=500 * ahead_hours * 3600, not_before=night.now + 6 * HOUR)
    assert hours(night.now, forecast.p50_at) == pytest.approx(end, rel=0.03)


def test_closed_hours_go_at_the_floor() -> None:
    night = Night().go(1, noisy(600))
    closes_at, opens_at = night.now + HOUR, night.now + 4 * HOUR
    forecast = night.forecast(600 * 2 * 3600 + 200 * 3 * 3600, is_open=lambda at: not closes_at <= at < opens_at)
    assert hours(night.now, forecast.p50_at) == pytest.approx(5.0, rel=0.05)


def test_closed_hours_that_were_seen_are_no_evidence_of_the_open_ones() -> None:
    night = Night().go(1, noisy(600)).go(2, noisy(200), held=2, is_open=False)
    assert night.p50_hours(600 * 3 * 3600) == pytest.approx(3.0, rel=0.08)


def test_closed_hours_before_any_open_ones() -> None:
    """All that is known of the open ones is what the slots at the floor achieved, so they are a wide guess."""
    night = Night().go(1, noisy(200), held=2, is_open=False)
    opens_at = night.now + HOUR
    forecast = night.forecast(200 * 3600 + 700 * 2 * 3600, is_open=lambda at: at >= opens_at)
    assert hours(night.now, forecast.p50_at) == pytest.approx(3.0, rel=0.1)
    assert hours(night.now, forecast.p90_at) > 4.0


def test_a_pause_is_no_evidence_of_the_rate() -> None:
    went_on, paused = Night().go(1, steady(500)), Night().go(1, steady(500))
    paused.now += 3 * HOUR
    for night in (went_on, paused):
        night.go(0.5, steady(500))
    assert paused.p50_hours(500 * 2 * 3600) == pytest.approx(went_on.p50_hours(500 * 2 * 3600), rel=0.01)


def test_the_first_stretch_after_a_start_does_not_count() -> None:
    """What would end in it had yet to begin."""
    night = Night().go(10 / 3600, steady(0)).go(0.02, steady(500))
    assert night.forecast(1e6).achieved_rate == 500.0


def test_another_scheduler_that_is_told_the_same_says_the_same() -> None:
    first, second = Night().go(2, noisy(500)), Night().go(2, noisy(500))
    assert first.forecast(5e6) == second.forecast(5e6)


def test_asking_changes_nothing() -> None:
    night = Night().go(1, noisy(500))
    before = night.forecast(5e6)
    night.forecast(1e6, tokens_ahead=1e6)
    assert night.forecast(5e6) == before


def test_a_pool_of_its_own_has_no_worse_case_than_its_range() -> None:
    forecaster = Forecaster(PoolCapacity(Amount(8, 30_000), Amount(), Amount(8, 30_000)))
    tokens, whole = noisy(500), Amount(8, 4000)
    for second in range(10, 3610, 10):
        at = START + timedelta(seconds=second)
        forecaster.observe(Observation(at, 10.0, tokens(), Amount(), whole, Amount(8, 30_000)))
    forecast = forecaster.forecast(START + HOUR, Work(500 * 4 * 3600), None, always)
    assert hours(START, forecast.p50_at) == pytest.approx(5.0, rel=0.02)
    assert forecast.floor_at == forecast.p90_at
    assert hours(START, forecast.p90_at) < 5.5


# --- the chat that is usual


@dataclass(frozen=True, slots=True)
class Sample:
    at: datetime
    interactive_slots: int
    interactive_tokens: int
    reason: str = "headroom"


def usual(slots: Callable[[float], int]) -> UsualLoad:
    """From a night before, the chat as a function of the hours since 22:00."""
    samples = [
        Sample(START - 24 * HOUR + timedelta(minutes=minute), slots(minute / 60), slots(minute / 60) * 700)
        for minute in range(9 * 60)
    ]
    return UsualLoad.of(samples, UTC)  # type: ignore[arg-type]


def test_a_chat_that_usually_rests_later_is_counted_on() -> None:
    quiet_later = usual(lambda hour: 13 if hour < 3 else 1)
    known, unknown = Night(quiet_later).go(2, noisy(600), chat=13), Night().go(2, noisy(600), chat=13)
    left = 600 * 3600 + 1200 * 2 * 3600  # an hour as it is, then twice as fast
    assert known.p50_hours(left) == pytest.approx(3.0, rel=0.1)
    assert unknown.p50_hours(left) == pytest.approx(5.0, rel=0.05)


def test_the_usual_chat_is_taken_at_tonight_s_level() -> None:
    """Tonight there is half of the usual chat: what is left of it at the busy hour is half too."""
    busy_later = usual(lambda hour: 6 if hour < 3 else 18)
    like_always, half = Night(busy_later).go(2, noisy(1000), chat=6), Night(busy_later).go(2, noisy(1000), chat=3)
    assert half.p50_hours(8e6) < 0.8 * like_always.p50_hours(8e6)


def test_a_usual_chat_that_never_changes_changes_nothing() -> None:
    flat = usual(lambda _: 10)
    with_usual, without = Night(flat).go(1, noisy(500)), Night().go(1, noisy(500))
    assert with_usual.p50_hours(7e6) == pytest.approx(without.p50_hours(7e6), rel=0.01)


# --- what holds on any night

STRETCHES = st.lists(st.tuples(st.integers(0, 30_000), st.integers(0, 12), st.integers(0, 18)), max_size=60)
TOKENS = st.floats(1, 1e8)


def told(stretches: list[tuple[int, int, int]], factor: int = 1) -> Night:
    night = Night(usual(lambda hour: round(hour) % 4 * 5))
    for tokens, held, chat in stretches:
        night.go(1 / 360, lambda tokens=tokens: tokens * factor, held, chat)  # type: ignore[misc]
    return night


def is_after(one: datetime | None, other: datetime | None) -> bool:
    return other is not None and (one is None or one > other)


@settings(deadline=None, max_examples=20)  # the machine may be busy
@given(STRETCHES, TOKENS, st.floats(0, 1e7), st.integers(0, 10))
def test_p50_is_not_after_p90_and_neither_after_the_floor_s(
    stretches: list[tuple[int, int, int]], left: float, ahead: float, waits: int
) -> None:
    night = told(stretches)
    forecast = night.forecast(left, tokens_ahead=ahead, not_before=night.now + waits * HOUR)
    assert not is_after(forecast.p50_at, forecast.p90_at)
    assert not is_after(forecast.p90_at, forecast.floor_at)
    assert forecast.p50_at is None or forecast.p50_at >= night.now + waits * HOUR


@settings(deadline=None, max_examples=20)
@given(STRETCHES, TOKENS, TOKENS)
def test_more_work_is_never_done_earlier(stretches: list[tuple[int, int, int]], one: float, other: float) -> None:
    night = told(stretches)
    less, more = night.forecast(min(one, other)), night.forecast(max(one, other))
    for name in ("p50_at", "p90_at", "floor_at", "full_at"):
        assert not is_after(getattr(less, name), getattr(more, name))


@settings(deadline=None, max_examples=20)
@given(STRETCHES, TOKENS, st.integers(2, 5))
def test_a_faster_night_is_never_done_later(stretches: list[tuple[int, int, int]], left: float, factor: int) -> None:
    slow, fast = told(stretches).forecast(left), told(stretches, factor).forecast(left)
    second = timedelta(seconds=1)  # rounding
    for name in ("p50_at", "p90_at", "floor_at", "full_at"):
        slower, faster = getattr(slow, name), getattr(fast, name)
        assert not is_after(faster, slower + second if slower else None)


@settings(deadline=None, max_examples=20)
@given(STRETCHES, st.integers(0, 10))
def test_with_nothing_left_it_is_done_now(stretches: list[tuple[int, int, int]], waits: int) -> None:
    night = told(stretches)
    forecast = night.forecast(0.0, tokens_ahead=1e6, not_before=night.now + waits * HOUR)
    assert forecast.p50_at == forecast.p90_at == night.now
