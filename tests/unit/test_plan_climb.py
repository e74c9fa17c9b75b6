"""Which number in flight is measured next: played against engines that level off at one number or another."""

from collections.abc import Callable

import pytest

from scheduler.curve import Step
from workers.measure.climb import OVER_SLOTS, REFINED, next_in_flight


def climb(
    rate: Callable[[int], float],
    slots: int,
    *,
    target: float | None = None,
    waits: Callable[[int], float] = lambda number: 0.1,
    refused_at: int | None = None,
) -> list[int]:
    """Every number that is measured, in that order."""
    steps: dict[int, Step] = {}
    order: list[int] = []
    while (number := next_in_flight([steps[at] for at in sorted(steps)], slots, target, refused_at)) is not None:
        assert number not in steps
        steps[number] = Step(
            number, 1.0, 10, rate(number), 0.0, 0.0, 1.0, 1.0, probe_ttft_seconds_p95=waits(number), probes=12
        )
        order.append(number)
    return order


def until(most: int) -> Callable[[int], float]:
    """An engine that serves so many at a time, each as fast as alone."""
    return lambda number: float(min(number, most))


def test_it_doubles_up_to_the_slots_and_once_beyond_them() -> None:
    assert climb(until(1000), 20)[:7] == [1, 2, 4, 8, 16, 20, 32]
    assert max(climb(until(1000), 20)) == 40


def test_it_stops_when_more_brings_nothing() -> None:
    assert max(climb(until(8), 64)) == 32


def test_it_stops_over_the_slots_where_that_brings_nothing() -> None:
    assert max(climb(until(4), 4)) == 8


@pytest.mark.parametrize("most", [1, 2, 3, 5, 8, 11, 13, 20, 27, 50])
def test_it_finds_the_knee_to_a_quarter(most: int) -> None:
    order = climb(until(most), 32)
    knee = min(number for number in order if min(number, most) >= 0.9 * min(max(order), most))
    assert 0.9 * most <= knee <= max(1.5 * most, most + 1)


def test_it_looks_closer_at_where_the_chat_begins_to_be_late() -> None:
    order = climb(until(40), 32, target=0.8, waits=lambda number: 0.1 if number <= 9 else 3.0)
    assert max(number for number in order if number <= 9) >= 8
    assert min(number for number in order if number > 9) <= 10


@pytest.mark.parametrize("slots", [1, 2, 7, 100, 1000])
def test_it_ends(slots: int) -> None:
    order = climb(until(10_000), slots, target=0.8, waits=lambda number: number / 10)
    assert len(order) <= OVER_SLOTS * slots
    assert max(order) <= OVER_SLOTS * slots
    doublings = (OVER_SLOTS * slots).bit_length() + 2
    assert len(order) <= doublings + REFINED


def test_it_never_goes_where_the_engine_turned_requests_away() -> None:
    assert max(climb(until(1000), 20, refused_at=8)) < 8
    assert climb(until(1000), 20, refused_at=1) == []
