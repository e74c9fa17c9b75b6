"""The receipt: what batch cost the chat, told from nights of which the truth is known."""

import math
from dataclasses import replace
from datetime import timedelta
from statistics import fmean

import pytest

from scheduler.receipt import LEAST_HELD_OUT, Cost, Look, receipt
from tests.support.interfered_night import (
    BEGAN,
    FLOOR,
    Delay,
    InterferedNight,
    interfered_night,
    none,
    steady,
    stumbling,
    when_busy,
)

KINDS = pytest.mark.parametrize("delay", [none, steady, stumbling, when_busy])


def tells(delay: Delay, nights: int, **named: float) -> float:
    """In which share of the nights, of those with an interval at all, it contains the truth."""
    told = [
        (night, cost)
        for night in (interfered_night(seed, delay, **named) for seed in range(nights))
        if (cost := receipt(night.looks).cost) is not None
    ]
    assert len(told) > nights / 2
    return sum(contains(cost, night) for night, cost in told) / len(told)


def contains(cost: Cost, night: InterferedNight) -> bool:
    return cost.low_seconds <= night.cost_seconds <= cost.high_seconds


class TestTheInterval:
    @KINDS
    def test_of_a_short_night(self, delay: Delay) -> None:
        assert tells(delay, 30, hours=3.0) >= 0.9

    @pytest.mark.rare
    @pytest.mark.parametrize(
        "named",
        [{}, {"requests_per_second": 0.05}, {"share": 0.1}],
        ids=["a usual night", "little chat", "much held out"],
    )
    @KINDS
    def test_of_many_nights(self, delay: Delay, named: dict[str, float]) -> None:
        share = tells(delay, 50, **named)
        print(f"\n{delay.__name__} {named or ''}: the truth in {share:.1%} of 50 nights")
        assert share >= 0.9

    @pytest.mark.rare
    def test_it_is_right_on_average(self) -> None:
        """Half of the nights it says too much, half of them too little."""
        nights = [interfered_night(seed, none, share=0.1) for seed in range(60)]
        costs = [receipt(night.looks).cost for night in nights]
        assert abs(fmean(cost.seconds for cost in costs if cost is not None)) < 0.009

    def test_a_cost_that_is_plain_is_not_taken_for_nothing(self) -> None:
        night = interfered_night(1, steady, share=0.1)
        cost = receipt(night.looks).cost
        assert cost is not None
        assert cost.low_seconds > 0.1
        assert night.naive_seconds < 0  # which would say that batch helps

    def test_of_more_minutes_is_narrower(self) -> None:
        few, many = (receipt(interfered_night(3, steady, share=share).looks).cost for share in (0.02, 0.1))
        assert few is not None
        assert many is not None
        assert many.high_seconds - many.low_seconds < few.high_seconds - few.low_seconds


def night_of(minutes: int, held_out: set[int], ttft_seconds: float = 0.4, **named: object) -> list[Look]:
    """A chat that never changes, with a look each ten seconds."""
    made = []
    for step in range(minutes * 6):
        minute = step // 6
        at = BEGAN + timedelta(seconds=10 * step + 5)
        look = Look(at, 3, 10, ttft_seconds, FLOOR if minute in held_out else 12, minute in held_out, is_open=True)
        made.append(replace(look, **named))  # type: ignore[arg-type]
    return made


class TestWhatIsCompared:
    def test_a_chat_that_is_not_disturbed_pays_nothing(self) -> None:
        found = receipt(night_of(60, {5, 20, 40}))
        assert (found.held_out, found.others) == (3, 56)  # of the first minute nobody knows what was before it
        assert found.cost is not None
        assert found.cost.seconds == pytest.approx(0.0)
        assert (found.floor_batch_slots, found.batch_slots) == (FLOOR, 12)

    def test_the_two_sides_differ_by_the_cost(self) -> None:
        looks = [replace(look, ttft_seconds=0.2) if look.is_held_out else look for look in night_of(60, {5, 20, 40})]
        found = receipt(looks)
        assert found.cost is not None
        assert found.cost.seconds == pytest.approx(0.2)
        assert found.floor_ttft_seconds == pytest.approx(0.2)
        assert found.ttft_seconds == pytest.approx(0.4)

    def test_too_few_minutes_tell_nothing(self) -> None:
        held_out = set(range(5, 5 + LEAST_HELD_OUT - 1))
        assert receipt(night_of(60, held_out)).cost is None
        assert receipt(night_of(8, {2, 3, 4, 5})).cost is None
        assert receipt([]).held_out == receipt([]).others == 0

    def test_what_still_runs_when_a_minute_begins_does_not_count(self) -> None:
        looks = [
            replace(look, ttft_seconds=9.0) if look.is_held_out and look.at.second < 25 else look
            for look in night_of(60, {5, 20, 40})
        ]
        found = receipt(looks)
        assert found.floor_ttft_seconds == pytest.approx(0.4)

    def test_minutes_without_chat_and_those_that_were_not_open_do_not_count(self) -> None:
        assert receipt(night_of(60, {5, 20, 40}, ttft_seconds=None)).others == 0  # type: ignore[arg-type]
        assert receipt(night_of(60, {5, 20, 40}, is_open=False)).others == 0

    def test_a_minute_is_compared_with_those_of_a_like_chat(self) -> None:
        """Busy every other ten minutes, and late then; batch costs nothing, and was held out in the busy ones."""
        looks = [
            replace(look, chat_slots=12, arrivals=40, ttft_seconds=1.2) if look.at.minute // 10 % 2 else look
            for look in night_of(180, {15, 35, 55, 75, 95})
        ]
        found = receipt(looks)
        assert found.cost is not None
        assert math.isclose(found.cost.seconds, 0.0, abs_tol=0.06)
