"""A measured curve: its knee, what is in time for the chat, what lies between its steps, and how it is stored."""

import json
from dataclasses import replace

import pytest

from scheduler.curve import Curve, Step, UnreadableCurve


def step(in_flight: int, tickets_per_second: float, probe_p95: float | None = None) -> Step:
    return Step(
        in_flight=in_flight,
        seconds=10.0,
        tickets=100,
        tickets_per_second=tickets_per_second,
        prompt_tokens_per_second=tickets_per_second * 500,
        completion_tokens_per_second=tickets_per_second * 40,
        ticket_seconds_p50=in_flight / tickets_per_second,
        ticket_seconds_p95=in_flight / tickets_per_second,
        probe_ttft_seconds_p95=probe_p95,
        probes=0 if probe_p95 is None else 12,
    )


def curve(*steps: Step) -> Curve:
    return Curve(steps, prompt_tokens=500, output_tokens=40, ask_tokens=564, largest_tokens=900, tickets_from="a test")


RISING = curve(step(1, 2.0, 0.1), step(4, 7.0, 0.2), step(8, 9.5, 0.5), step(16, 10.0, 1.5))


def test_the_knee_is_the_fewest_with_nine_tenths_of_the_best() -> None:
    assert RISING.knee.in_flight == 8
    assert curve(step(1, 9.0), step(2, 10.0)).knee.in_flight == 1
    assert curve(step(1, 8.9), step(2, 10.0)).knee.in_flight == 2


def test_more_than_the_best_does_not_move_the_knee() -> None:
    assert curve(*RISING.steps, step(32, 6.0)).knee.in_flight == 8


@pytest.mark.parametrize(("target", "most"), [(0.05, None), (0.1, 1), (0.3, 4), (0.5, 8), (1.4, 8), (2.0, 16)])
def test_the_most_in_flight_with_chat_in_time(target: float, most: int | None) -> None:
    within = RISING.most_within(target)
    assert (within.in_flight if within else None) == most


def test_one_late_probe_at_a_light_load_is_chance() -> None:
    within = curve(step(1, 2.0, 3.0), step(4, 7.0, 0.2), step(8, 9.0, 3.0)).most_within(0.8)
    assert within is not None
    assert within.in_flight == 4


def test_without_probes_nothing_is_known_of_the_chat() -> None:
    unprobed = curve(step(1, 2.0), step(4, 7.0))
    assert not unprobed.is_probed
    assert unprobed.most_within(1e9) is None
    assert RISING.is_probed


@pytest.mark.parametrize(("in_flight", "rate"), [(1, 2.0), (2.5, 4.5), (4, 7.0), (12, 9.75), (16, 10.0), (40, 10.0)])
def test_between_the_steps_it_is_straight_and_beyond_them_level(in_flight: float, rate: float) -> None:
    assert RISING.tickets_per_second(in_flight) == pytest.approx(rate)


def test_under_the_first_step_it_falls_to_nothing() -> None:
    assert curve(step(4, 8.0)).tickets_per_second(1) == pytest.approx(2.0)
    assert curve(step(4, 8.0)).tickets_per_second(0) == 0


def test_what_is_in_flight_over_what_ends_is_how_long_a_ticket_takes() -> None:
    assert RISING.ticket_seconds(4) == pytest.approx(4 / 7)
    assert RISING.ticket_seconds(32) == pytest.approx(3.2)
    assert RISING.ticket_seconds(0) == pytest.approx(0.5)


def test_tokens_are_those_of_the_tickets() -> None:
    assert RISING.tokens_per_second(4) == pytest.approx(7 * 540)


def test_it_is_read_as_it_was_stored() -> None:
    assert Curve.from_json(json.loads(json.dumps(RISING.as_json()))) == RISING


@pytest.mark.parametrize("detail", [{}, {"steps": []}, RISING.as_json() | {"steps": []}, {"steps": [{"in_flight": 1}]}])
def test_what_is_no_curve_says_what_to_do(detail: dict[str, object]) -> None:
    with pytest.raises(UnreadableCurve, match="measure the pool again"):
        Curve.from_json(detail)


def test_steps_are_in_order() -> None:
    with pytest.raises(ValueError, match="more in flight"):
        replace(RISING, steps=RISING.steps[::-1])
    with pytest.raises(ValueError, match="at least one step"):
        replace(RISING, steps=())
