"""What a batch request may find taken when it asks: plain arithmetic first, then what must hold for any pool."""

import math
from dataclasses import replace
from itertools import accumulate

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from scheduler.capacity import NOTHING, Amount, PoolCapacity
from scheduler.headroom import DRAIN_SECONDS, HORIZONS_SECONDS, RESERVE_DEVIATIONS, headroom
from scheduler.permit import Outlook, PublishedLimit

POOL = PoolCapacity(Amount(20, 60_000), Amount(4, 12_000), Amount(2, 6_000))
OPEN = PublishedLimit(POOL.most_batch, 60_000)
RISES = tuple(Amount(n, 1_000 * n) for n, _ in enumerate(HORIZONS_SECONDS, start=1))
"""One slot more at each horizon."""


def room(chat: Amount = NOTHING, own_slots: int = 0, expected_seconds: float = 0.0, **outlook: object) -> Amount:
    published = replace(OPEN, outlook=Outlook(**outlook))  # type: ignore[arg-type]
    return headroom(POOL, published, chat, own_slots, expected_seconds)


class TestArithmetic:
    def test_without_chat_all_that_is_published(self) -> None:
        assert room(expected_seconds=1e6) == POOL.most_batch

    def test_what_chat_holds_is_taken_on_both_axes(self) -> None:
        assert room(Amount(9, 30_000)) == Amount(11, 30_000)

    def test_the_reserve_is_kept_free_in_slots_and_in_what_a_chat_request_holds(self) -> None:
        assert room(Amount(9, 30_000), reserve=2, request_tokens=700) == Amount(9, 28_600)

    @pytest.mark.parametrize("nth", range(len(HORIZONS_SECONDS)))
    def test_at_a_horizon_chat_is_as_far_up_as_it_rose_within_it(self, nth: int) -> None:
        seen = room(Amount(8, 20_000), 0, HORIZONS_SECONDS[nth], high=Amount(20, 60_000), rises=RISES)
        assert seen == Amount(12, 40_000) - RISES[nth]

    def test_between_two_horizons_it_is_between_them(self) -> None:
        halfway = (HORIZONS_SECONDS[0] + HORIZONS_SECONDS[1]) / 2
        seen = room(Amount(8, 20_000), 0, halfway, high=Amount(20, 60_000), rises=RISES)
        assert seen == Amount(12 - 2, 40_000 - 1_500)  # one slot and a half make two

    def test_beyond_the_last_horizon_it_rises_no_further(self) -> None:
        assert room(Amount(8, 20_000), 0, 1e9, high=Amount(20, 60_000), rises=RISES) == Amount(12, 40_000) - RISES[-1]

    def test_it_does_not_rise_over_what_chat_holds_in_busy_moments(self) -> None:
        assert room(Amount(8, 20_000), 0, 1e9, high=Amount(9, 21_000), rises=RISES) == Amount(11, 39_000)
        assert room(Amount(8, 20_000), 0, 1e9, high=Amount(3, 1_000), rises=RISES) == Amount(12, 40_000)

    def test_arrivals_in_the_time_in_which_one_of_our_own_ends_are_kept_free(self) -> None:
        per_second, own_slots, seconds = 40, 10, 2.0
        mean = per_second * seconds / own_slots
        assert seconds / own_slots < DRAIN_SECONDS
        reserve = math.ceil(mean + RESERVE_DEVIATIONS * math.sqrt(mean))
        seen = room(Amount(4, 12_000), own_slots, seconds, arrivals_milli=per_second * 1_000)
        assert seen.slots == max(POOL.floor.slots, 16 - reserve)

    def test_what_lasts_long_holds_no_more_free_than_arrives_in_the_drain_time(self) -> None:
        one, other = (room(Amount(4, 0), 1, s, arrivals_milli=8_000) for s in (DRAIN_SECONDS, 1e6))
        assert one == other
        assert one.slots < 16

    def test_the_floor_is_left_however_busy_the_chat_is(self) -> None:
        assert room(Amount(20, 60_000), 0, 1e9, reserve=20) == POOL.floor

    def test_fewer_horizons_than_rises_or_more_are_borne(self) -> None:
        chat, high = Amount(8, 20_000), Amount(20, 60_000)
        assert room(chat, 0, 1e9, high=high, rises=RISES[:1]) == Amount(12, 40_000) - RISES[0]
        further = (*RISES, Amount(9, 9_000))
        assert room(chat, 0, 1e9, high=high, rises=further) == Amount(12, 40_000) - RISES[-1]


slots = st.integers(0, 40) | st.integers(0, 10**6)
tokens = st.integers(0, 90_000) | st.integers(0, 10**12)
amounts = st.builds(Amount, slots, tokens)
seconds = st.floats(0, 60) | st.floats(0, 1e9) | st.sampled_from(HORIZONS_SECONDS)


@st.composite
def pools(draw: st.DrawFn) -> PoolCapacity:
    floor, interactive, shared = draw(st.builds(Amount, st.integers(1, 40), tokens)), draw(amounts), draw(amounts)
    return PoolCapacity(floor + interactive + shared, interactive, floor)


@st.composite
def published(draw: st.DrawFn) -> PublishedLimit:
    """Any limit that may stand in a ledger; chat rises the further the longer one looks ahead."""
    steps = draw(st.just([]) | st.lists(amounts, min_size=len(RISES), max_size=len(RISES)))
    outlook = Outlook(
        high=draw(amounts),
        arrivals_milli=draw(st.integers(0, 10**7)),
        request_tokens=draw(tokens),
        reserve=draw(slots),
        rises=tuple(accumulate(steps)),
    )
    return PublishedLimit(draw(amounts), draw(tokens), outlook)


class TestProperties:
    @given(pools(), published(), amounts, slots, seconds)
    def test_it_lies_between_the_floor_and_what_is_published(
        self, pool: PoolCapacity, limit: PublishedLimit, chat: Amount, own_slots: int, expected_seconds: float
    ) -> None:
        seen = headroom(pool, limit, chat, own_slots, expected_seconds)
        assert pool.floor.fits(seen)
        assert seen.fits(limit.limit.at_least(pool.floor))
        assert {type(seen.slots), type(seen.tokens)} == {int}

    @given(pools(), published(), amounts, amounts, slots, seconds)
    def test_more_chat_never_leaves_more_room(
        self,
        pool: PoolCapacity,
        limit: PublishedLimit,
        chat: Amount,
        more: Amount,
        own_slots: int,
        expected_seconds: float,
    ) -> None:
        before = headroom(pool, limit, chat, own_slots, expected_seconds)
        assert headroom(pool, limit, chat + more, own_slots, expected_seconds).fits(before)

    @given(pools(), published(), amounts, slots, seconds, seconds)
    @example(POOL, OPEN, NOTHING, 0, HORIZONS_SECONDS[0], math.nextafter(HORIZONS_SECONDS[0], 0))
    def test_a_longer_ticket_never_finds_more_room(
        self, pool: PoolCapacity, limit: PublishedLimit, chat: Amount, own_slots: int, one: float, other: float
    ) -> None:
        shorter, longer = sorted((one, other))
        before = headroom(pool, limit, chat, own_slots, shorter)
        assert headroom(pool, limit, chat, own_slots, longer).fits(before)

    @given(pools(), published(), amounts, slots, seconds, st.data())
    def test_expecting_more_of_the_chat_never_leaves_more_room(
        self,
        pool: PoolCapacity,
        limit: PublishedLimit,
        chat: Amount,
        own_slots: int,
        expected_seconds: float,
        data: st.DataObject,
    ) -> None:
        name = data.draw(st.sampled_from(["high", "arrivals_milli", "request_tokens", "reserve"]))
        value = getattr(limit.outlook, name)
        more = value + data.draw(amounts if name == "high" else st.integers(0, 10**6))
        worse = replace(limit, outlook=replace(limit.outlook, **{name: more}))
        before = headroom(pool, limit, chat, own_slots, expected_seconds)
        assert headroom(pool, worse, chat, own_slots, expected_seconds).fits(before)

    @given(pools(), published(), amounts, st.integers(0, 300), seconds)
    def test_chat_finds_its_reserve_or_batch_is_at_its_floor(
        self, pool: PoolCapacity, limit: PublishedLimit, chat: Amount, own_slots: int, expected_seconds: float
    ) -> None:
        seen = headroom(pool, limit, chat, own_slots, expected_seconds)
        if seen.slots > pool.floor.slots:
            assert chat.slots + seen.slots + limit.outlook.reserve <= pool.total.slots
        if seen.tokens > pool.floor.tokens:
            kept = limit.outlook.reserve * limit.outlook.request_tokens
            assert chat.tokens + seen.tokens + kept <= pool.total.tokens

    @given(pools(), published(), amounts, st.integers(0, 300), seconds)
    def test_the_more_of_our_own_run_the_sooner_one_ends(
        self, pool: PoolCapacity, limit: PublishedLimit, chat: Amount, own_slots: int, expected_seconds: float
    ) -> None:
        assume(own_slots > 0)
        fewer = headroom(pool, limit, chat, own_slots, expected_seconds)
        assert fewer.fits(headroom(pool, limit, chat, own_slots + 1, expected_seconds))
