"""A level seen through noise: what the models make of steady, jumping and drifting nights."""

import math
import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.level import BLOCK_SECONDS, Block, Expectation, Prior, expectations


def blocks(values: list[float], seconds: float = BLOCK_SECONDS) -> list[Block]:
    return [Block(number * seconds, seconds, value) for number, value in enumerate(values, 1)]


def noisy(level: float, count: int, rng: random.Random, share: float = 0.1) -> list[float]:
    return [rng.gauss(level, level * share) for _ in range(count)]


def mean(found: list[Expectation]) -> float:
    return sum(one.weight * (one.level + one.wander) for one in found)


def deviation(found: list[Expectation], seconds: float) -> float:
    """Of the mean over the seconds to come, relative to nothing."""
    return math.sqrt(sum(one.weight * one.sum_variance(seconds) for one in found)) / seconds


def test_nothing_is_said_of_nothing() -> None:
    assert expectations([], 0.0) == []
    assert expectations([], 100.0) == []


def test_a_prior_is_what_is_said_at_first() -> None:
    found = expectations([], 500.0, Prior(500.0, 100.0))
    assert mean(found) == pytest.approx(500.0)
    assert deviation(found, 8 * 3600.0) >= 100.0


def test_a_prior_gives_way_to_what_is_seen() -> None:
    found = expectations(blocks(noisy(800.0, 30, random.Random(1))), 800.0, Prior(300.0, 100.0))
    assert mean(found) == pytest.approx(800.0, rel=0.06)


def test_a_steady_night_is_the_mean_of_all_that_was_seen() -> None:
    values = noisy(800.0, 200, random.Random(2))
    found = expectations(blocks(values), 800.0)
    assert mean(found) == pytest.approx(sum(values) / len(values), rel=0.02)
    assert deviation(found, 3600.0) < 0.05 * 800


def test_a_jump_is_followed_within_minutes() -> None:
    rng = random.Random(3)
    found = expectations(blocks(noisy(500.0, 120, rng) + noisy(900.0, 6, rng)), 520.0)
    assert mean(found) == pytest.approx(900.0, rel=0.1)


def test_one_odd_minute_is_no_jump() -> None:
    rng = random.Random(4)
    found = expectations(blocks([*noisy(500.0, 120, rng), 1000.0, *noisy(500.0, 10, rng)]), 520.0)
    assert mean(found) == pytest.approx(500.0, rel=0.06)


def test_a_night_that_drifted_is_trusted_less_than_a_steady_one() -> None:
    rng = random.Random(5)
    steady = noisy(500.0, 240, rng, 0.03)
    wandering = [value + 200 * math.sin(number / 25) for number, value in enumerate(steady)]
    assert deviation(expectations(blocks(wandering), 500.0), 7200.0) > 3 * deviation(
        expectations(blocks(steady), 500.0), 7200.0
    )


def test_little_seen_means_wide() -> None:
    values = noisy(500.0, 60, random.Random(6))
    wide = [deviation(expectations(blocks(values[:count]), 500.0), 3600.0) for count in (1, 5, 60)]
    assert wide == sorted(wide, reverse=True)
    assert wide[0] > 2 * wide[2]


def test_after_a_pause_a_level_is_known_less_well() -> None:
    seen = blocks(noisy(500.0, 60, random.Random(7)))
    went_on = [*seen, Block(61 * BLOCK_SECONDS, BLOCK_SECONDS, 500.0)]
    paused = [*seen, Block(60 * BLOCK_SECONDS + 4 * 3600, BLOCK_SECONDS, 500.0)]
    assert deviation(expectations(paused, 500.0), 3600.0) > deviation(expectations(went_on, 500.0), 3600.0)


@given(st.lists(st.floats(0, 5000), min_size=1, max_size=80), st.floats(0.5, 2000))
def test_it_is_sound_whatever_is_seen(values: list[float], scale: float) -> None:
    found = expectations(blocks(values), scale)
    assert math.isclose(sum(one.weight for one in found), 1.0)
    for one in found:
        spreads = [one.sum_variance(seconds) for seconds in (1.0, 60.0, 600.0, 3600.0, 36_000.0)]
        assert spreads[0] > 0
        assert all(shorter < longer for shorter, longer in pairwise(spreads))
        assert math.isfinite(one.level)


@given(st.lists(st.floats(1, 1000), min_size=2, max_size=30), st.sampled_from([2.0, 10.0, 0.25]))
def test_the_unit_does_not_matter(values: list[float], factor: float) -> None:
    here, there = (
        expectations(blocks(values), 300.0),
        expectations(blocks([value * factor for value in values]), 300.0 * factor),
    )
    assert mean(there) == pytest.approx(mean(here) * factor, rel=1e-6)
    assert deviation(there, 3600.0) == pytest.approx(deviation(here, 3600.0) * factor, rel=1e-6)
