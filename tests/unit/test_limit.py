"""The law of the limit, as properties of any sequence of readings: at 4 slots as at 256, on both axes, at any pace."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.capacity import NOTHING, Amount, PoolCapacity
from scheduler.limit import (
    CALM_SECONDS,
    COHORT_SECONDS,
    EASE_SECONDS,
    RATE_SECONDS,
    STEP_SHARE,
    TARGET_SHARE,
    Decision,
    Limit,
    Rule,
)
from scheduler.permit import PublishedLimit
from scheduler.signals.load import Load

TARGET_SECONDS = 0.8
LATE_SECONDS = TARGET_SECONDS * 2
TICK_SECONDS = 0.5

SMALL = PoolCapacity(Amount(4, 8_000), Amount(2, 4_000), Amount(1, 2_000))
USUAL = PoolCapacity(Amount(20, 60_000), Amount(8, 24_000), Amount(2, 6_000))
BY_TOKENS = PoolCapacity(Amount(256, 90_000), Amount(96, 36_000), Amount(16, 9_000))
FLOOR_ONLY = PoolCapacity(Amount(20, 60_000), Amount(18, 54_000), Amount(2, 6_000))
DEDICATED = PoolCapacity(Amount(20, 60_000), NOTHING, Amount(20, 60_000))
POOLS = [SMALL, USUAL, BY_TOKENS]
pools = pytest.mark.parametrize("pool", POOLS, ids=["4 slots", "20 slots", "256 slots by tokens"])

QUIET = Load()
few = settings(max_examples=25, deadline=None)


@dataclass(frozen=True, slots=True)
class Reading:
    """A load, and how long after the one before it was read."""

    after_seconds: float
    load: Load


def held(own: Amount) -> Load:
    """Batch holds so much, and nobody chats."""
    return Load(batch_in_flight=own, batch_expected_seconds=1.0)


def breaks(pool: PoolCapacity) -> list[Load]:
    """What makes the chat suffer from what batch has borrowed, and how that shows."""
    full = held(pool.most_batch)
    return [
        replace(full, ttfts_seconds=(0.1, LATE_SECONDS)),
        replace(full, oldest_waiting_seconds=LATE_SECONDS, waiting=1),
        replace(full, is_congested=True),
    ]


def within(whole: Amount) -> st.SearchStrategy[Amount]:
    return st.builds(Amount, st.integers(0, whole.slots), st.integers(0, whole.tokens))


seconds = st.floats(0, 4 * TARGET_SECONDS) | st.sampled_from([0.0, TARGET_SECONDS, LATE_SECONDS])
gaps = st.sampled_from([TICK_SECONDS] * 4 + [0.0, 0.01, 1.3]) | st.floats(0.0, 2 * COHORT_SECONDS) | st.just(1e9)


@st.composite
def loads(draw: st.DrawFn, pool: PoolCapacity, own: Amount | None = None) -> Load:
    """Any reading of a pool in which batch holds at most `own`."""
    in_flight = draw(within(pool.total))
    return Load(
        in_flight=in_flight,
        waiting=draw(st.integers(0, in_flight.slots)),
        oldest_waiting_seconds=draw(st.just(0.0) | seconds),
        arrivals=draw(st.integers(0, 40)),
        ttfts_seconds=tuple(draw(st.lists(seconds, max_size=2))),
        batch_in_flight=draw(st.just(own or pool.total) | within(own or pool.total)),
        batch_expected_seconds=draw(st.sampled_from([0.0, 0.3, 1.5, 90.0])),
        is_congested=draw(st.sampled_from([False, False, False, True])),
        is_blind=draw(st.sampled_from([False, False, False, True])),
        prefill_rate=draw(st.none() | st.floats(0.0, 1e5)),
    )


@st.composite
def evenings(
    draw: st.DrawFn, among: Sequence[PoolCapacity] = POOLS, *, at_the_floor: bool = False
) -> tuple[PoolCapacity, list[Reading]]:
    """A pool, and any readings of it at any pace."""
    pool = draw(st.sampled_from(list(among)))
    some = st.builds(Reading, gaps, loads(pool, pool.floor if at_the_floor else None))
    return pool, draw(st.lists(some, min_size=1, max_size=15))


class Evening:
    """A limit and its clock."""

    def __init__(self, pool: PoolCapacity) -> None:
        self.pool = pool
        self.limit = Limit(pool, TARGET_SECONDS)
        self.now = 1_000.0
        self.decisions: list[Decision] = []
        self.at: list[float] = []

    def read(self, load: Load, after_seconds: float = TICK_SECONDS, *, is_open: bool = True) -> Decision:
        self.now += after_seconds
        self.at.append(self.now)
        self.decisions.append(self.limit.decide(load, self.now, is_open=is_open))
        return self.decisions[-1]

    def play(self, readings: Sequence[Reading]) -> None:
        for reading in readings:
            self.read(reading.load, reading.after_seconds)

    def stay(self, load: Load, for_seconds: float, tick_seconds: float = TICK_SECONDS) -> Decision:
        """The same reading again and again."""
        for _ in range(max(1, math.ceil(for_seconds / tick_seconds))):
            decision = self.read(load, tick_seconds)
        return decision

    def suffer(self, kind: int = 0, after_seconds: float = 2 * TICK_SECONDS) -> Decision:
        """Batch holds all that is shared, and a tick later the chat is seen to suffer from it."""
        self.read(held(self.pool.most_batch), after_seconds - TICK_SECONDS)
        return self.read(breaks(self.pool)[kind])

    @property
    def reserve(self) -> int:
        """The slots kept free at least, by the last decision."""
        return self.decisions[-1].published.outlook.reserve

    def is_at_floor(self) -> bool:
        return self.decisions[-1].published.limit == self.pool.floor


class TestBounds:
    @few
    @given(evenings([*POOLS, FLOOR_ONLY]), st.lists(st.booleans(), min_size=15, max_size=15))
    def test_never_under_the_floor_nor_over_what_is_shared(
        self, evening: tuple[PoolCapacity, list[Reading]], hours: list[bool]
    ) -> None:
        pool, readings = evening
        played = Evening(pool)
        for reading, is_open in zip(readings, hours, strict=False):
            decision = played.read(reading.load, reading.after_seconds, is_open=is_open)
            for amount in (decision.published.limit, decision.room):
                assert pool.floor.fits(amount)
                assert amount.fits(pool.most_batch)
            assert decision.room.fits(decision.published.limit)

    @few
    @given(evenings())
    def test_what_is_published_is_whole_and_not_negative(self, evening: tuple[PoolCapacity, list[Reading]]) -> None:
        pool, readings = evening
        played = Evening(pool)
        for reading in readings:
            published = played.read(reading.load, reading.after_seconds).published
            o = published.outlook
            numbers = [published.prefill_tokens, o.high.slots, o.high.tokens, o.arrivals_milli, o.request_tokens]
            numbers += [o.reserve, o.prefill_rate, o.prefill_ahead_tokens, o.prefill_beside_tokens]
            assert min(numbers) >= 0
            assert {type(number) for number in numbers} == {int}
            assert o.reserve <= 1 + pool.shared.slots
            assert o.high.fits(pool.total)

    def test_huge_readings_are_borne(self) -> None:
        evening = Evening(USUAL)
        evening.read(held(USUAL.most_batch))
        huge = Amount(10**9, 10**15)
        load = Load(
            huge, 10**9, 1e12, 10**9, (1e12,), huge, batch_expected_seconds=1e12, prefill_rate=1e15, is_congested=True
        )
        for after_seconds in (0.5, 1e-9, 0.0, 1e9):
            decision = evening.read(load, after_seconds)
            assert decision.published.limit == USUAL.floor
        evening.stay(replace(load, ttfts_seconds=(), oldest_waiting_seconds=0.0, is_congested=False), 2 * CALM_SECONDS)
        assert evening.decisions[-1].room == USUAL.floor

    @few
    @given(evenings([DEDICATED]), st.booleans())
    def test_a_dedicated_pool_is_always_batchs_own(
        self, evening: tuple[PoolCapacity, list[Reading]], is_open: bool
    ) -> None:
        pool, readings = evening
        played = Evening(pool)
        for reading in readings:
            decision = played.read(reading.load, reading.after_seconds, is_open=is_open)
            assert decision.published.limit == decision.room == pool.total
            assert decision.published.prefill_tokens == pool.total.tokens
            assert (decision.rule, decision.pull_back) == (Rule.DEDICATED, False)


class TestDown:
    @pools
    @pytest.mark.parametrize("kind", [0, 1, 2])
    @few
    @given(data=st.data())
    def test_red_lands_on_the_floor_in_one_step_and_asks_back_after_any_evening(
        self, pool: PoolCapacity, kind: int, data: st.DataObject
    ) -> None:
        evening = Evening(pool)
        evening.play(data.draw(evenings([pool]))[1])
        decision = evening.suffer(kind)
        assert decision.published.limit == decision.room == pool.floor
        assert decision.rule in (Rule.TTFT, Rule.CONGESTION)
        assert decision.pull_back

    @few
    @given(evenings())
    def test_blind_is_the_floor(self, evening: tuple[PoolCapacity, list[Reading]]) -> None:
        pool, readings = evening
        played = Evening(pool)
        for reading in readings:
            decision = played.read(reading.load, reading.after_seconds)
            if reading.load.is_blind:
                assert decision.published.limit == decision.room == pool.floor
                assert decision.rule is Rule.BLIND
                own = reading.load.batch_in_flight
                assert decision.pull_back is (own.slots > 1 and not own.fits(pool.floor))

    @pytest.mark.parametrize("suffering", [Load(is_blind=True), Load(oldest_waiting_seconds=LATE_SECONDS)])
    def test_one_ticket_alone_is_left_to_end_however_large(self, suffering: Load) -> None:
        """The ledger admits it beside nothing else: asked back, it would come again, and so for ever."""
        evening = Evening(USUAL)
        large = Amount(1, USUAL.floor.tokens + 1)
        evening.stay(held(large), 1.0)
        decision = evening.read(replace(suffering, batch_in_flight=large))
        assert (decision.published.limit, decision.pull_back) == (USUAL.floor, False)
        assert evening.read(replace(suffering, batch_in_flight=large + Amount(1, 1))).pull_back

    @few
    @given(evenings())
    def test_closed_hours_are_the_floor_and_what_runs_may_end(
        self, evening: tuple[PoolCapacity, list[Reading]]
    ) -> None:
        pool, readings = evening
        played = Evening(pool)
        for reading in readings:
            decision = played.read(reading.load, reading.after_seconds, is_open=False)
            assert decision.published.limit == pool.floor
            if decision.rule is Rule.CLOSED:
                assert not decision.pull_back

    def test_closed_hours_begin_at_once_and_end_at_once(self) -> None:
        evening = Evening(USUAL)
        full = held(USUAL.most_batch)
        assert evening.stay(full, 2 * CALM_SECONDS).rule is Rule.MAXIMUM
        closed = evening.read(full, is_open=False)
        assert (closed.published.limit, closed.rule, closed.pull_back) == (USUAL.floor, Rule.CLOSED, False)
        assert evening.read(full).published.limit == USUAL.most_batch

    @few
    @given(evenings(at_the_floor=True))
    def test_a_break_while_batch_was_at_its_floor_is_not_its_doing(
        self, evening: tuple[PoolCapacity, list[Reading]]
    ) -> None:
        pool, readings = evening
        played = Evening(pool)
        for reading in readings:
            decision = played.read(reading.load, reading.after_seconds)
            assert decision.rule in (Rule.BLIND, Rule.HEADROOM, Rule.MAXIMUM)
            assert not decision.pull_back
            assert played.reserve <= 1

    def test_batch_that_went_to_its_floor_in_time_is_not_blamed_for_a_later_wait(self) -> None:
        evening = Evening(USUAL)
        evening.read(held(USUAL.most_batch))
        evening.stay(held(USUAL.floor), LATE_SECONDS + TICK_SECONDS)
        late = replace(held(USUAL.floor), ttfts_seconds=(LATE_SECONDS,))
        assert evening.read(late).rule is Rule.MAXIMUM

    def test_batch_that_left_while_the_request_waited_is_blamed_for_it(self) -> None:
        evening = Evening(USUAL)
        evening.read(held(USUAL.most_batch))
        late = replace(held(USUAL.floor), ttfts_seconds=(LATE_SECONDS,))
        assert evening.read(late, LATE_SECONDS / 2).rule is Rule.TTFT
        assert evening.is_at_floor()


class TestUp:
    @pools
    @few
    @given(data=st.data())
    def test_calm_reaches_the_maximum_after_any_evening(self, pool: PoolCapacity, data: st.DataObject) -> None:
        evening = Evening(pool)
        evening.play(data.draw(evenings([pool]))[1])
        decision = evening.stay(held(pool.most_batch), _forgotten_seconds(pool), EASE_SECONDS / 3)
        assert decision.published.limit == decision.room == pool.most_batch
        assert decision.rule is Rule.MAXIMUM
        assert evening.reserve == 0

    @pools
    def test_calm_reaches_the_maximum_also_after_the_worst_night(self, pool: PoolCapacity) -> None:
        evening = Evening(pool)
        for _ in range(pool.shared.slots + 2):
            evening.suffer(after_seconds=COHORT_SECONDS)
        assert evening.reserve == pool.shared.slots
        decision = evening.stay(held(pool.most_batch), _forgotten_seconds(pool), EASE_SECONDS / 3)
        assert (decision.room, evening.reserve) == (pool.most_batch, 0)

    @pools
    def test_a_new_pool_without_chat_is_open_at_once(self, pool: PoolCapacity) -> None:
        decision = Evening(pool).read(QUIET)
        assert (decision.room, decision.rule) == (pool.most_batch, Rule.MAXIMUM)

    @pools
    @few
    @given(data=st.data())
    def test_beside_constant_chat_it_rests_on_what_the_chat_leaves(
        self, pool: PoolCapacity, data: st.DataObject
    ) -> None:
        chat = data.draw(st.builds(Amount, st.integers(1, pool.total.slots), st.integers(1, pool.total.tokens)))
        evening = Evening(pool)
        evening.play(data.draw(evenings([pool]))[1])
        load = replace(held(pool.most_batch), in_flight=chat)
        decision = evening.stay(load, _forgotten_seconds(pool), EASE_SECONDS / 3)
        outlook = decision.published.outlook
        assert (outlook.high, outlook.reserve) == (chat, 1)
        left = pool.total - chat - Amount(1, outlook.request_tokens)
        assert decision.room == left.at_most(pool.most_batch).at_least(pool.floor)
        for _ in range(10):  # what one request holds is a slow mean
            room = evening.read(load, 1.3).room
            assert room.slots == decision.room.slots
            assert abs(room.tokens - decision.room.tokens) <= 0.02 * pool.total.tokens

    @few
    @given(evenings())
    def test_it_does_not_swing_faster_than_its_calm_time(self, evening: tuple[PoolCapacity, list[Reading]]) -> None:
        pool, readings = evening
        played = Evening(pool)
        played.play(readings)
        _assert_rises_are_apart(played)

    @pools
    @pytest.mark.parametrize("tick_seconds", [0.1, TICK_SECONDS, 1.7])
    def test_a_pool_that_breaks_whenever_it_is_open_swings_no_faster(
        self, pool: PoolCapacity, tick_seconds: float
    ) -> None:
        evening = Evening(pool)
        for _ in range(200):
            is_open = bool(evening.decisions) and not evening.is_at_floor()
            evening.read(breaks(pool)[0] if is_open else held(pool.floor), tick_seconds)
        _assert_rises_are_apart(evening)


class TestReserve:
    @pools
    @few
    @given(data=st.data())
    def test_one_step_for_all_that_was_in_flight_together(self, pool: PoolCapacity, data: st.DataObject) -> None:
        evening = Evening(pool)
        stepped_at = -math.inf
        before = 0
        for reading in data.draw(evenings([pool]))[1]:
            busy = replace(reading.load, in_flight=reading.load.in_flight.at_least(Amount(1, 1)), is_blind=False)
            evening.read(busy, reading.after_seconds)
            learned = evening.reserve - 1
            if learned > before:
                assert learned - before <= _step(pool)
                assert evening.now - stepped_at >= COHORT_SECONDS
                assert evening.is_at_floor()
                stepped_at = evening.now
            before = learned

    @pools
    def test_breaks_in_a_row_are_one_step_a_cohort(self, pool: PoolCapacity) -> None:
        evening = Evening(pool)
        evening.suffer()
        evening.stay(breaks(pool)[0], COHORT_SECONDS - TICK_SECONDS)
        assert evening.reserve == _step(pool)
        evening.read(breaks(pool)[0])
        assert evening.reserve == min(2 * _step(pool), pool.shared.slots)

    @pools
    @few
    @given(calm_seconds=st.floats(0, 4 * EASE_SECONDS))
    def test_a_break_teaches_however_long_it_was_calm_before(self, pool: PoolCapacity, calm_seconds: float) -> None:
        evening = Evening(pool)
        evening.stay(held(pool.most_batch), calm_seconds, tick_seconds=COHORT_SECONDS / 2)
        evening.suffer()
        assert evening.reserve == _step(pool)

    @pools
    def test_it_comes_back_down_one_step_at_a_time(self, pool: PoolCapacity) -> None:
        evening = Evening(pool)
        for _ in range(3):
            evening.suffer(after_seconds=COHORT_SECONDS)
        high = evening.reserve
        assert high == min(3 * _step(pool), pool.shared.slots)
        for _ in range(3):
            evening.stay(held(pool.most_batch), EASE_SECONDS - 2 * TICK_SECONDS)
            assert evening.reserve == high
            evening.stay(held(pool.most_batch), 2 * TICK_SECONDS)
            high = max(0, high - _step(pool))
            assert evening.reserve == high
        assert high == 0


class TestOutlook:
    @few
    @given(st.lists(st.integers(1, 6), min_size=30, max_size=60), st.integers(0, 9))
    def test_the_arrival_rate_is_found_at_any_pace(self, gaps_seconds: list[int], per_second: int) -> None:
        evening = Evening(USUAL)
        evening.read(QUIET)
        for gap in gaps_seconds:
            evening.read(Load(arrivals=per_second * gap), gap)
        found = evening.decisions[-1].published.outlook.arrivals_milli
        missing = math.exp(-sum(gaps_seconds) / RATE_SECONDS)
        assert found == pytest.approx(1000 * per_second * (1 - missing), abs=1)

    def test_arrivals_before_the_first_reading_are_no_rate(self) -> None:
        evening = Evening(USUAL)
        assert evening.read(Load(arrivals=500)).published.outlook.arrivals_milli == 0

    @pools
    @few
    @given(rate=st.floats(0, 1e6), target_seconds=st.floats(0.05, 5))
    def test_prompts_on_their_way_take_a_part_of_the_target_at_most(
        self, pool: PoolCapacity, rate: float, target_seconds: float
    ) -> None:
        decision = Limit(pool, target_seconds).decide(Load(prefill_rate=rate), 1_000.0)
        most = rate * target_seconds * TARGET_SHARE + 0.5
        outlook = decision.published.outlook
        assert (
            outlook.prefill_beside_tokens <= decision.published.prefill_tokens <= outlook.prefill_ahead_tokens <= most
        )

    def test_many_engines_are_given_prompts_for_all_of_them(self) -> None:
        def published(prefilled_per_second: float) -> PublishedLimit:
            load = Load(prefill_rate=10_000, prefilled_per_second=prefilled_per_second)
            return Limit(USUAL, 0.8).decide(load, 1_000.0).published

        one, many = published(9_000), published(100_000)
        assert (one.prefill_tokens, many.prefill_tokens) == (500, 5_000)
        assert many.outlook.prefill_beside_tokens == 10 * one.outlook.prefill_beside_tokens
        assert many.outlook.prefill_ahead_tokens == 10 * one.outlook.prefill_ahead_tokens
        assert many.outlook.prefill_rate == one.outlook.prefill_rate  # of one request

    def test_of_an_unknown_engine_one_prompt_at_a_time(self) -> None:
        published = Evening(USUAL).read(QUIET).published
        outlook = published.outlook
        assert (published.prefill_tokens, outlook.prefill_rate, outlook.prefill_beside_tokens) == (0, 0, 0)

    def test_what_could_not_be_seen_is_not_taken_for_quiet(self) -> None:
        evening = Evening(USUAL)
        busy = Load(in_flight=Amount(10, 5_000), arrivals=1)
        evening.stay(busy, 20 * RATE_SECONDS)
        seen = evening.decisions[-1].published.outlook
        evening.stay(Load(is_blind=True), 4 * RATE_SECONDS)
        evening.read(replace(busy, arrivals=1))
        again = evening.decisions[-1].published.outlook
        assert again.high == seen.high
        assert again.arrivals_milli == pytest.approx(seen.arrivals_milli, rel=0.05)


class TestClock:
    def test_one_that_stands_still_decides_all_the_same(self) -> None:
        evening = Evening(USUAL)
        for _ in range(50):
            assert evening.read(held(USUAL.most_batch), 0.0).rule is Rule.MAXIMUM
        for _ in range(50):
            assert evening.read(breaks(USUAL)[0], 0.0).published.limit == USUAL.floor
            assert evening.reserve == _step(USUAL)
        assert evening.read(held(USUAL.most_batch), 0.0).published.limit == USUAL.floor

    def test_one_that_jumps_far_ahead_forgets_what_was(self) -> None:
        evening = Evening(USUAL)
        evening.stay(replace(breaks(USUAL)[0], in_flight=Amount(9, 9_000), arrivals=9), COHORT_SECONDS)
        decision = evening.read(held(USUAL.most_batch), 1e9)
        assert (decision.rule, decision.published.outlook.high) == (Rule.MAXIMUM, NOTHING)


def _step(pool: PoolCapacity) -> int:
    return max(1, int(pool.total.slots * STEP_SHARE))


def _forgotten_seconds(pool: PoolCapacity) -> float:
    """After so long without a break everything that was learned from the last ones is gone."""
    steps = math.ceil(pool.shared.slots / _step(pool))
    return 300.0 + EASE_SECONDS * (steps + 2)


def _assert_rises_are_apart(evening: Evening) -> None:
    """Between a time at the floor and the rise from it lies the calm time, or nothing held batch down."""
    fell_at: float | None = None
    is_down = False
    for at, decision in zip(evening.at, evening.decisions, strict=True):
        at_floor = decision.published.limit == evening.pool.floor
        if at_floor and not is_down:
            fell_at = at
        if is_down and not at_floor:
            assert fell_at is not None
            assert at - fell_at >= CALM_SECONDS
        is_down = at_floor
