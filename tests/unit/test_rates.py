"""Rates at the floor and against the full limit, and where each comes from."""

from datetime import UTC, datetime, timedelta

import pytest

from scheduler.capacity import Amount, PoolCapacity
from scheduler.observation import Observation
from scheduler.rates import HALF_LIFE_SECONDS, KnownRates, RateMeter, RateSource

CAPACITY = PoolCapacity(Amount(20, 60_000), Amount(8, 24_000), Amount(2, 6_000))  # most of batch: 12, 36,000
MOST = Amount(12, 36_000)
FIRST = datetime(2026, 11, 30, 21, 0, tzinfo=UTC)


class Night:
    """Stretches of ten seconds, one after the other."""

    def __init__(self, known: KnownRates | None = None, capacity: PoolCapacity = CAPACITY) -> None:
        self.meter = RateMeter(capacity, known) if known else RateMeter(capacity)
        self.at = FIRST

    def see(self, rate: int, held: Amount, *, limit: Amount = MOST, times: int = 1, is_open: bool = True) -> None:
        for _ in range(times):
            self.at += timedelta(seconds=10)
            self.meter.add(Observation(self.at, 10.0, rate * 10, Amount(), held, limit, is_open))


def test_nothing_is_known_before_anything_was_seen() -> None:
    meter = RateMeter(CAPACITY)
    assert meter.floor() is None
    assert meter.full() is None
    assert meter.tokens_per_slot() is None


def test_nothing_is_scaled_from_stretches_in_which_nothing_ended() -> None:
    night = Night()
    night.see(0, Amount(6, 3000), times=30)
    assert night.meter.full() is None


def test_both_are_scaled_from_the_slots_in_use() -> None:
    night = Night()
    night.see(600, Amount(6, 3000), times=6)
    floor, full = night.meter.floor(), night.meter.full()
    assert floor is not None
    assert full is not None
    assert floor.tokens_per_second == pytest.approx(200)
    assert floor.source is RateSource.SCALED
    assert full.tokens_per_second == pytest.approx(1200)
    assert full.source is RateSource.SCALED


def test_the_axis_that_binds_first_is_the_one_to_scale_by() -> None:
    night = Night()
    night.see(600, Amount(3, 18_000), times=6)  # large tickets: twice as much are all tokens, not all slots
    full = night.meter.full()
    assert full is not None
    assert full.tokens_per_second == pytest.approx(1200)


def test_less_was_never_scaled_from_more() -> None:
    night = Night()
    night.see(100, Amount(1, 500), times=6)
    floor = night.meter.floor()
    assert floor is not None
    assert floor.tokens_per_second == pytest.approx(100)  # one slot in use tells nothing of two


def test_a_curve_comes_before_scaling() -> None:
    night = Night(KnownRates(floor=150.0, full=1000.0))
    night.see(600, Amount(6, 3000), times=6)
    floor, full = night.meter.floor(), night.meter.full()
    assert floor is not None
    assert full is not None
    assert (floor.tokens_per_second, floor.source) == (150.0, RateSource.CURVE)
    assert (full.tokens_per_second, full.source) == (1000.0, RateSource.CURVE)


def test_what_was_measured_tonight_comes_before_a_curve() -> None:
    night = Night(KnownRates(floor=150.0, full=1000.0))
    night.see(180, Amount(2, 1000), limit=CAPACITY.floor, times=13)
    night.see(1100, Amount(12, 6000), times=14)
    floor, full = night.meter.floor(), night.meter.full()
    assert floor is not None
    assert full is not None
    assert floor.tokens_per_second == pytest.approx(180)
    assert floor.source is RateSource.MEASURED
    assert full.tokens_per_second == pytest.approx(1100)
    assert full.source is RateSource.MEASURED


def test_a_moment_at_the_full_limit_is_no_stretch_at_it() -> None:
    night = Night()
    for _ in range(30):
        night.see(400, Amount(12, 6000))
        night.see(400, Amount(4, 2000))
    full = night.meter.full()
    assert full is not None
    assert full.source is RateSource.SCALED


def test_a_floor_measured_beside_little_chat_promises_nothing_for_a_busy_one() -> None:
    night = Night()
    night.see(600, Amount(6, 3000), times=60)  # 100 a slot on a busy engine
    night.see(400, Amount(2, 1000), times=30, is_open=False)  # 200 a slot in the closed hours
    floor, at_floor = night.meter.floor(), night.meter.at_floor()
    assert floor is not None
    assert at_floor is not None
    assert floor.tokens_per_second < 250
    assert at_floor.tokens_per_second == pytest.approx(400)


def test_what_was_seen_fades() -> None:
    night = Night()
    night.see(1000, Amount(6, 3000), times=360)
    night.see(100, Amount(6, 3000), times=round(4 * HALF_LIFE_SECONDS / 10))
    full = night.meter.full()
    assert full is not None
    assert 200 <= full.tokens_per_second <= 350


def test_little_seen_is_known_less_well() -> None:
    short, long = Night(), Night()
    short.see(600, Amount(6, 3000), times=3)
    long.see(600, Amount(6, 3000), times=100)
    little, much = short.meter.full(), long.meter.full()
    assert little is not None
    assert much is not None
    assert little.error > 2 * much.error
    assert little.cautious < much.cautious < much.tokens_per_second < much.bold < little.bold


def test_a_pool_without_a_floor_has_a_floor_of_nothing() -> None:
    night = Night(capacity=PoolCapacity(Amount(20, 60_000), Amount(8, 24_000), Amount(0, 0)))
    floor = night.meter.floor()
    assert floor is not None
    assert floor.tokens_per_second == 0.0
