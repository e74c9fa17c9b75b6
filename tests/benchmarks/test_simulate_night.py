"""A whole night in virtual time: nine hours, forty thousand tickets and twenty thousand chat requests, on one core.

The tickets are as long as nine hours allow, so that batch asks for room all night: a night that is over sooner takes
less. With the forecasts that `simulate` makes along with it, and without.
"""

import random
import time
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from scheduler.hours import SharedHours
from scheduler.simulation.night import Night, Outcome, play
from scheduler.simulation.paced import play_paced
from scheduler.simulation.shapes import Arrival
from scheduler.simulation.tickets import of_mean_lengths
from tests.simulation.sites import MIDDLE

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(900)]

HOURS = 9
TICKETS, CHAT = 40_000, 20_000
MEAN_PROMPT, MEAN_OUTPUT = 4000, 280
MOST_SECONDS = 60.0


def the_night() -> Night:
    """People who know nothing of each other, with prompts and answers of many lengths."""
    rng, seconds = random.Random(1), HOURS * 3600.0
    chat = sorted(
        Arrival(
            rng.uniform(0, seconds),
            max(16, int(rng.lognormvariate(6.3, 0.6))),
            min(800, max(4, int(rng.lognormvariate(4.7, 0.6)))),
        )
        for _ in range(CHAT)
    )
    start = datetime(2026, 11, 30, 21, 0, tzinfo=UTC)
    tickets = of_mean_lengths(TICKETS, MEAN_PROMPT, MEAN_OUTPUT, 1)
    always = SharedHours.of(None, ZoneInfo("Europe/Berlin"))
    return Night(MIDDLE, always, tickets, chat, start, start + timedelta(seconds=seconds))


@pytest.mark.parametrize("has_forecasts", [False, True], ids=["alone", "with its forecasts"])
def test_a_night_takes_less_than_a_minute(has_forecasts: bool) -> None:
    night = the_night()
    began, began_cpu = time.perf_counter(), time.process_time()
    outcome: Outcome = play_paced(night)[0] if has_forecasts else play(night)
    seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - began_cpu
    played = (outcome.ended_at - night.starts_at).total_seconds()
    print(
        f"\n{played / 3600:.2f} h, {outcome.tickets:,} tickets, {outcome.chat:,} chat requests: {cpu_seconds:.1f} s of "
        f"one core, {seconds:.1f} s on the clock; {played / cpu_seconds:,.0f} times as fast as it would go"
    )
    print(
        f"  chat TTFT p50 {outcome.ttft_p50_seconds:.3f}, p99 {outcome.ttft_p99_seconds:.3f} s; "
        f"{outcome.withdrawn:,} tickets withdrawn"
    )
    assert played > 0.9 * HOURS * 3600  # else it would not be the night that is meant
    assert outcome.tickets > 0.9 * TICKETS
    assert cpu_seconds < MOST_SECONDS
