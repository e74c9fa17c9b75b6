"""What the peers reach at a chat p99, worked out by hand."""

import pytest

from tests.simulation.frontier import Frontier, Point
from tests.simulation.nights import change_constants
from tests.simulation.rows import ALONE, OURS, Result, caps
from tests.simulation.sites import LARGE, MIDDLE, SMALL
from tests.simulation.table import Table, render, row_names


def row(p99: float, rate: float) -> Result:
    return Result(0.1, 0.2, p99, rate, 500 * rate, 0.0, 0.0, 0.0, 0.0, 0.0)


def table(ours: Result) -> Table:
    rows = {ALONE: row(0.5, 0.0), "cap 1": row(0.6, 1.0), "cap 2": row(0.8, 2.0), "cap 3": row(0.7, 1.5), OURS: ours}
    return Table(MIDDLE, "burst", "short", rows)


def test_it_is_linear_between_the_points() -> None:
    frontier = Frontier.of([Point(1.0, 2.0), Point(0.5, 0.0), Point(2.0, 4.0)])
    assert frontier.at(0.75) == pytest.approx(1.0)
    assert frontier.at(1.5) == pytest.approx(3.0)


def test_a_point_that_another_beats_on_both_counts_does_not_count() -> None:
    frontier = Frontier.of([Point(1.0, 2.0), Point(1.5, 1.0), Point(2.0, 4.0)])
    assert frontier.at(1.5) == pytest.approx(3.0)


def test_beyond_the_last_point_nothing_is_gained_and_below_the_first_there_is_none() -> None:
    frontier = Frontier.of([Point(1.0, 2.0), Point(0.5, 1.0)])
    assert frontier.at(9.0) == 2.0
    assert frontier.at(0.5) == 1.0
    assert frontier.at(0.49) is None


def test_ours_is_held_against_the_caps_at_its_own_p99() -> None:
    ours = table(row(0.65, 5.0))  # half way between cap 1 and cap 3
    assert ours.against_caps(OURS) == pytest.approx(5.0 / 1.25)
    assert ours.p99_against_floor(OURS) == pytest.approx(0.65 / 0.8)


def test_between_chat_alone_and_the_first_cap_it_is_held_against_a_part_of_that_cap() -> None:
    assert table(row(0.55, 5.0)).against_caps(OURS) == pytest.approx(5.0 / 0.5)


def test_below_chat_alone_it_is_held_against_the_first_cap_and_says_so() -> None:
    ours = table(row(0.45, 5.0))
    assert ours.is_below_alone(OURS)
    assert ours.against_caps(OURS) == 5.0
    assert "below chat alone" in render(ours)


def test_the_caps_are_one_to_sixteen_of_twenty_slots_in_proportion() -> None:
    assert caps(MIDDLE) == list(range(1, 17))
    assert caps(SMALL) == [1, 2, 3]
    assert caps(LARGE)[-1] == 205
    assert LARGE.capacity.floor.slots in caps(LARGE)


def test_chat_alone_is_in_every_table() -> None:
    assert row_names(MIDDLE, ["ours"]) == [ALONE, OURS]


def test_a_constant_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(ValueError, match="admission has no TICK"):
        change_constants([("scheduler.simulation.admission", "TICK", 1.0)])
