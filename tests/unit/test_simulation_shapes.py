"""The traffic of the simulation: the same for every row, and as much of it as the shape says."""

from collections import Counter
from dataclasses import replace
from fractions import Fraction

import pytest

from scheduler.simulation.shapes import Arrival, alternating, burst, overload, random_rates
from scheduler.simulation.site import Site
from scheduler.simulation.tickets import AHEAD, LONG, SHORT, TicketQueue, endless
from tests.simulation.chats import SHAPES, trace
from tests.simulation.occupancy import share_used
from tests.simulation.sites import MIDDLE, SITES, SMALL


@pytest.mark.parametrize("shape", SHAPES)
def test_a_seed_gives_the_same_requests_again_and_another_seed_others(shape: str) -> None:
    make = SHAPES[shape]
    assert make(MIDDLE, 1, 200) == make(MIDDLE, 1, 200) != make(MIDDLE, 2, 200)


@pytest.mark.parametrize("shape", SHAPES)
def test_requests_come_in_order_and_within_the_time(shape: str) -> None:
    arrivals = SHAPES[shape](MIDDLE, 3, 200)
    assert arrivals == sorted(arrivals)
    assert all(0 <= arrival.at < 200 and min(arrival[1:]) >= 1 for arrival in arrivals)


def test_alternating_is_one_a_second_and_five_a_second_in_turns() -> None:
    arrivals = alternating(MIDDLE, 1, 4000)
    calm = sum(arrival.at % 20 < 10 for arrival in arrivals)
    assert calm == pytest.approx(2000, rel=0.1)
    assert len(arrivals) - calm == pytest.approx(10_000, rel=0.05)
    assert {arrival[1:] for arrival in arrivals} == {(512, 100)}


def test_a_burst_is_eight_at_once_every_eight_seconds_over_one_a_second() -> None:
    arrivals = burst(MIDDLE, 1, 4000)
    at_once = Counter(int(arrival.at) for arrival in arrivals if arrival.at % 8 < 0.001)
    assert at_once.keys() >= set(range(8, 4000, 8))
    assert min(at_once.values()) == 8
    assert len(arrivals) == pytest.approx(4000 + 8 * 499, rel=0.05)


def test_random_rates_differ_from_minute_to_minute() -> None:
    by_minute = Counter(int(arrival.at // 60) for arrival in random_rates(MIDDLE, 1, 3600))
    assert min(by_minute.values()) < 60
    assert max(by_minute.values()) > 200


def test_a_larger_site_has_more_chat_in_proportion() -> None:
    twice = replace(MIDDLE, chat_scale=Fraction(2))
    assert len(alternating(twice, 1, 2000)) == pytest.approx(2 * len(alternating(MIDDLE, 1, 2000)), rel=0.1)
    assert sum(8 <= arrival.at < 8.01 for arrival in burst(SMALL, 1, 20)) == 2


@pytest.mark.parametrize("site", SITES.values(), ids=SITES.keys())
def test_the_trace_alone_uses_forty_hundredths_of_the_engines(site: Site) -> None:
    assert share_used(site, trace(site, 201, 3500)) == pytest.approx(0.40, abs=0.03)


def test_the_share_used_is_slot_time_over_what_there_is() -> None:
    # Alone, 20 prompt tokens and 101 answers: 20 ms + 1.2 ms, then 100 steps of 20.15 ms: 2.036 s, every 4 s, of 20.
    arrivals = [Arrival(float(4 * number), 20, 101) for number in range(1, 101)]
    assert share_used(MIDDLE, arrivals) == pytest.approx(99 * 2.036 / (20 * 400), rel=0.001)


def test_overload_is_more_than_the_engine_can_do() -> None:
    assert len(overload(MIDDLE, 1, 100)) > 1000


def test_an_endless_mix_is_half_and_half_even_where_the_small_pass_the_large() -> None:
    queue, taken = TicketQueue(endless("mix", 1)), Counter[str]()
    for _ in range(5000):
        ticket = queue.candidates()[-1]
        queue.take(ticket)
        taken["short" if ticket == SHORT else "long"] += 1
    assert abs(taken["short"] - taken["long"]) < AHEAD + 200  # of 5,000: the look-ahead, and the luck of the seed


def test_a_ticket_that_comes_back_stands_behind_those_that_wait() -> None:
    queue = TicketQueue(endless("short", 1))
    queue.put_back(LONG)
    for _ in range(AHEAD):
        assert queue.candidates()[0] == SHORT
        queue.take(SHORT)
    assert queue.candidates()[0] == LONG
