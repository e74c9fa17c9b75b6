"""The engine's clock: what it loses, and when things were on the wall."""

import pytest

from tests.engine.clock import EngineClock


class Hand:
    """A monotonic clock moved by hand."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def hand() -> Hand:
    return Hand()


def test_it_counts_from_the_moment_it_was_made(hand: Hand) -> None:
    clock = EngineClock(hand)
    hand.seconds += 2.5
    assert clock.now() == 2.5
    assert clock.monotonic(2.5) == 102.5


def test_a_process_that_stood_still_has_lost_the_time_since_it_was_due(hand: Hand) -> None:
    clock = EngineClock(hand, stopped_after_seconds=0.5)
    hand.seconds += 11.0
    assert clock.now(due=1.0) == 1.0
    hand.seconds += 0.25
    assert clock.now(due=1.5) == 1.25


def test_a_loop_that_is_merely_late_has_lost_nothing(hand: Hand) -> None:
    clock = EngineClock(hand, stopped_after_seconds=0.5)
    hand.seconds += 1.375
    assert clock.now(due=1.0) == 1.375


def test_it_stands_still_while_frozen(hand: Hand) -> None:
    clock = EngineClock(hand)
    hand.seconds += 1.0
    clock.freeze()
    hand.seconds += 10.0
    assert clock.frozen
    assert clock.now(due=1.5) == 1.0
    clock.thaw()
    hand.seconds += 0.5
    assert clock.now() == 1.5


def test_moments_before_a_stop_keep_their_place_on_the_wall(hand: Hand) -> None:
    clock = EngineClock(hand)
    start = clock.wall(0.0)
    hand.seconds += 11.0
    clock.now(due=1.0)
    assert clock.wall(0.5) - start == pytest.approx(0.5)
    assert clock.wall(1.0) - start == pytest.approx(11.0)
    assert clock.wall(1.25) - start == pytest.approx(11.25)
    assert clock.wall_now() - start == pytest.approx(11.0)
