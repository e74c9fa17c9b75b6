"""The engine model fitted to a curve does what the curve says: here the curve of a known engine is the measurement."""

from dataclasses import replace

import pytest

from scheduler.simulation.engine.profile import EngineProfile
from scheduler.simulation.fitted import fitted, played

DEFAULT = EngineProfile()
SMALL = EngineProfile(slots=4, step_base_seconds=0.01, prefill_token_seconds=0.0006, decode_sequence_seconds=0.002)
LARGE = EngineProfile(slots=64, decode_sequence_seconds=0.0005)
LENGTHS = [(500, 40), (300, 8), (1200, 200)]


@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
@pytest.mark.parametrize("profile", [DEFAULT, SMALL, LARGE], ids=["default", "small", "large"])
def test_it_does_what_was_measured(profile: EngineProfile, lengths: tuple[int, int]) -> None:
    numbers = [1 << power for power in range((2 * profile.slots).bit_length())]
    measured = played(profile, numbers, *lengths)
    again = played(fitted(measured, profile.slots), numbers, *lengths)
    for was, is_now in zip(measured.steps, again.steps, strict=True):
        assert is_now.tickets_per_second == pytest.approx(was.tickets_per_second, rel=0.1)


def test_it_finds_the_times_of_a_step() -> None:
    found = fitted(played(DEFAULT, [1, 2, 4, 8, 16, 20], 500, 40), DEFAULT.slots)
    assert found.step_base_seconds == pytest.approx(DEFAULT.step_base_seconds, rel=0.1)
    assert found.prefill_token_seconds == pytest.approx(DEFAULT.prefill_token_seconds, rel=0.15)
    assert found.decode_sequence_seconds == pytest.approx(DEFAULT.decode_sequence_seconds, rel=0.5)


def test_where_tickets_waited_for_a_slot_it_counts_the_slots() -> None:
    measured = played(SMALL, [1, 2, 4, 8, 16], 500, 40)
    assert fitted(measured, 8).slots == SMALL.slots


def test_where_none_waited_it_takes_the_slots_that_are_configured() -> None:
    assert fitted(played(DEFAULT, [1, 2, 4], 500, 40), 20).slots == 20


def test_without_times_to_first_token_the_rates_decide() -> None:
    measured = played(DEFAULT, [1, 4, 16], 500, 40)
    blind = replace(measured, steps=tuple(replace(step, ttft_seconds=None) for step in measured.steps))
    again = played(fitted(blind, DEFAULT.slots), [1, 4, 16], 500, 40)
    for was, is_now in zip(measured.steps, again.steps, strict=True):
        assert is_now.tickets_per_second == pytest.approx(was.tickets_per_second, rel=0.1)


def test_a_curve_of_one_step_is_enough() -> None:
    measured = played(DEFAULT, [8], 500, 40)
    again = played(fitted(measured, DEFAULT.slots), [8], 500, 40)
    assert again.best.tickets_per_second == pytest.approx(measured.best.tickets_per_second, rel=0.1)
