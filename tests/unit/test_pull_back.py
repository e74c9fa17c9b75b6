"""Who is asked back, in what order, and who may end by himself: examples first, then any mixture of requests."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.capacity import NOTHING, Amount, total
from scheduler.pull_back import DRAINER_MS, SOON_MS, SPARE_MS, Running, in_front, victims

FLOOR = Amount(2, 2_000)
EVERYTHING = Amount(99, 99_000)
RATE = 10_000  # prompt tokens in a second


def running(
    *, left_ms: float = math.inf, has_first_token: bool = False, tokens: int = 1_000, prompt: int = 900, age_ms: int = 0
) -> Running:
    return Running("", 0, Amount(1, tokens), has_first_token, left_ms, prompt, age_ms)


def several(*requests: Running) -> list[Running]:
    """In the order in which they were admitted, the oldest first: a, b, c ..."""
    return [replace(one, token=chr(ord("a") + n), order=n + 1) for n, one in enumerate(requests)]


class TestVictims:
    def test_none_where_all_have_room(self) -> None:
        assert victims(several(*[running()] * 5), Amount(5, 5_000), FLOOR, SPARE_MS) == []

    def test_just_what_is_over(self) -> None:
        assert victims(several(*[running()] * 5), Amount(4, 99_000), FLOOR, SPARE_MS) == ["e"]
        assert victims(several(*[running()] * 5), Amount(99, 3_999), FLOOR, SPARE_MS) == ["e", "d"]

    def test_down_to_the_floor_at_most(self) -> None:
        assert victims(several(*[running()] * 5), NOTHING, FLOOR, SPARE_MS) == ["e", "d", "c"]

    def test_the_youngest_without_a_first_token_first(self) -> None:
        own = several(running(), running(has_first_token=True), running(), running(has_first_token=True))
        assert victims(own, NOTHING, Amount(), SPARE_MS) == ["c", "a", "d", "b"]

    def test_who_ends_within_the_time_given_is_left_to(self) -> None:
        own = several(running(left_ms=SPARE_MS), running(left_ms=SPARE_MS + 1), running(left_ms=SPARE_MS))
        assert victims(own, NOTHING, Amount(), SPARE_MS) == ["b"]

    def test_who_ends_in_a_moment_makes_room_by_it(self) -> None:
        own = several(running(), running(), running(), running(left_ms=SOON_MS), running())
        assert victims(own, Amount(4, 99_000), FLOOR, SPARE_MS) == []
        assert victims(own, Amount(3, 99_000), FLOOR, SPARE_MS) == ["e"]

    def test_who_ends_later_than_that_does_not(self) -> None:
        own = several(running(), running(), running(), running(left_ms=SOON_MS + 1), running())
        assert victims(own, Amount(4, 99_000), FLOOR, SPARE_MS) == ["e"]

    def test_who_is_as_good_as_gone_makes_room_once(self) -> None:
        """A chat request found no room: the two oldest stay, the three that end in a moment end, the rest must go."""
        soon = running(left_ms=SOON_MS, has_first_token=True)
        own = several(*[running(has_first_token=True)] * 5, soon, soon, soon)
        assert victims(own, NOTHING, FLOOR, SOON_MS) == ["e", "d", "c"]


class TestInFront:
    def test_none_where_little_is_still_to_go(self) -> None:
        assert in_front(several(*[running()] * 3), 2_700, RATE, FLOOR) == []

    def test_the_youngest_until_little_is_still_to_go(self) -> None:
        assert in_front(several(*[running()] * 5), 2_700, RATE, FLOOR) == ["e", "d"]

    def test_what_was_read_meanwhile_is_not_to_go(self) -> None:
        own = several(*[running()] * 4, running(age_ms=60))  # 600 of its 900 tokens are behind it
        assert in_front(own, 3_900, RATE, FLOOR) == []
        assert in_front(own, 3_899, RATE, FLOOR) == ["e"]
        assert in_front(several(*[running(age_ms=90)] * 5), 0, RATE, FLOOR) == []

    def test_nor_does_asking_back_spare_the_chat_what_was_read(self) -> None:
        own = several(*[running(age_ms=30)] * 5)  # 600 of 900 tokens are still to go
        assert in_front(own, 1_300, RATE, FLOOR) == ["e", "d", "c"]

    def test_who_has_begun_to_write_is_in_front_of_nobody(self) -> None:
        own = several(*[running(has_first_token=True)] * 4, running())
        assert in_front(own, 0, RATE, FLOOR) == ["e"]

    def test_none_of_the_floor_on_either_axis(self) -> None:
        assert in_front(several(*[running()] * 4), 0, RATE, Amount(2, 0)) == ["d", "c"]
        assert in_front(several(*[running()] * 4), 0, RATE, Amount(1, 3_000)) == ["d"]

    def test_who_is_too_large_to_go_does_not_keep_a_smaller_one_here(self) -> None:
        own = several(running(tokens=500), running(), running(tokens=2_000))
        assert in_front(own, 0, RATE, Amount(1, 1_600)) == ["b", "a"]

    def test_who_ends_soon_is_left_to(self) -> None:
        own = several(running(), running(), running(), running(left_ms=SPARE_MS))
        assert in_front(own, 0, RATE, FLOOR) == ["c", "b"]


lefts = st.sampled_from([0, SOON_MS, SOON_MS + 1, SPARE_MS, SPARE_MS + 1, DRAINER_MS, DRAINER_MS + 1, math.inf])
requests = st.builds(
    running,
    left_ms=lefts | st.integers(0, 60_000),
    has_first_token=st.booleans(),
    tokens=st.integers(0, 4_000),
    prompt=st.integers(0, 4_000),
    age_ms=st.integers(0, 60_000),
)
mixtures = st.lists(requests, max_size=30).map(lambda made: several(*made))
rooms = st.builds(Amount, st.integers(-5, 30), st.integers(-5_000, 60_000))
floors = st.builds(Amount, st.integers(0, 5), st.integers(0, 6_000))


def named(own: list[Running], tokens: list[str]) -> list[Running]:
    by_token = {one.token: one for one in own}
    return [by_token[token] for token in tokens]


def amount(requests: list[Running]) -> Amount:
    return total(one.amount for one in requests)


def cheapest(one: Running) -> tuple[bool, int]:
    """No first token first, then the youngest."""
    return one.has_first_token, -one.order


@pytest.mark.parametrize("spare_ms", [SOON_MS, SPARE_MS, DRAINER_MS])
class TestAnyVictims:
    @given(own=mixtures, room=rooms, floor=floors)
    def test_what_is_left_has_room_once_those_about_to_end_have(
        self, spare_ms: int, own: list[Running], room: Amount, floor: Amount
    ) -> None:
        """Or nothing is left but the spared, or the floor."""
        asked_back = victims(own, room, floor, spare_ms)
        left = [one for one in own if one.token not in asked_back]
        stays = amount([one for one in left if one.left_ms > SOON_MS])
        over = [one for one in left if one.left_ms > spare_ms]
        for held, free, least in (
            (stays.slots, room.slots, floor.slots),
            (stays.tokens, room.tokens, floor.tokens),
        ):
            assert held <= max(free, least) or not over

    @given(own=mixtures, room=rooms, floor=floors)
    def test_none_is_asked_back_in_vain(self, spare_ms: int, own: list[Running], room: Amount, floor: Amount) -> None:
        """With the last one asked back, those that stay would be over the room, and over batch's floor."""
        asked_back = victims(own, room, floor, spare_ms)
        if asked_back:
            before = [one for one in own if one.token not in asked_back[:-1] and one.left_ms > SOON_MS]
            assert not amount(before).fits(room.at_least(floor))

    @given(own=mixtures, room=rooms, floor=floors)
    def test_they_go_in_order_and_who_ends_in_time_stays(
        self, spare_ms: int, own: list[Running], room: Amount, floor: Amount
    ) -> None:
        asked_back = named(own, victims(own, room, floor, spare_ms))
        assert asked_back == sorted(asked_back, key=cheapest)
        assert all(one.left_ms > spare_ms for one in asked_back)
        if asked_back:  # nobody was passed over
            dearer = [one for one in own if one not in asked_back and cheapest(one) < cheapest(asked_back[-1])]
            assert all(one.left_ms <= spare_ms for one in dearer)

    @given(own=mixtures, room=rooms, floor=floors)
    def test_asking_again_asks_nobody_else(
        self, spare_ms: int, own: list[Running], room: Amount, floor: Amount
    ) -> None:
        asked_back = victims(own, room, floor, spare_ms)
        left = [one for one in own if one.token not in asked_back]
        assert victims(left, room, floor, spare_ms) == []


class TestAnyInFront:
    @given(own=mixtures, most=st.integers(0, 9_000), rate=st.integers(1, 50_000), floor=floors)
    def test_little_is_left_to_go_or_none_who_could_go(
        self, own: list[Running], most: int, rate: int, floor: Amount
    ) -> None:
        asked_back = in_front(own, most, rate, floor)
        left = [one for one in own if one.token not in asked_back]
        ahead = [one for one in left if not one.has_first_token]
        to_go = sum(max(0, one.prompt_tokens - one.age_ms * rate // 1000) for one in ahead)
        could_go = [one for one in ahead if one.left_ms > SPARE_MS and floor.fits(amount(left) - one.amount)]
        assert to_go <= most or not could_go

    @given(own=mixtures, most=st.integers(0, 9_000), rate=st.integers(1, 50_000), floor=floors)
    def test_never_the_floor_nor_the_spared_nor_who_writes_and_in_order(
        self, own: list[Running], most: int, rate: int, floor: Amount
    ) -> None:
        asked_back = named(own, in_front(own, most, rate, floor))
        assert asked_back == sorted(asked_back, key=cheapest)
        assert not any(one.has_first_token or one.left_ms <= SPARE_MS for one in asked_back)
        if asked_back:
            assert floor.fits(amount(own) - amount(asked_back))


def test_the_times_stand_in_their_order() -> None:
    """What is as good as gone is spared by every rule: it makes room by ending."""
    assert 0 < SOON_MS <= SPARE_MS <= DRAINER_MS
