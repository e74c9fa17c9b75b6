"""The receipt of whole nights in virtual time, by the same admission as in production.

Each night is played twice with the same chat: as it is, with minutes held out, and with nothing shared, so that batch
is at its floor all night. What batch cost the chat in truth is by how much the first tokens of the first came later.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from statistics import fmean
from zoneinfo import ZoneInfo

import pytest

from scheduler.capacity import PoolCapacity
from scheduler.holdout import minute_of
from scheduler.hours import SharedHours
from scheduler.limit import Rule
from scheduler.receipt import SAMPLE_SECONDS, SETTLE_SECONDS, Look, receipt
from scheduler.simulation.night import Night, Row, play
from scheduler.simulation.shapes import random_rates
from scheduler.simulation.tickets import of_mean_lengths
from tests.simulation.sites import MIDDLE

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(1800)]

NIGHTS, HOURS, HOLDOUT = 10, 2.0, 0.1
BEGAN = datetime(2026, 11, 30, 21, 0, 35, tzinfo=UTC)  # so that no row ends with a minute


def night(seed: int) -> Night:
    """Chat whose rate jumps about, and more tickets of mixed lengths than can be done."""
    seconds = HOURS * 3600.0
    tickets = of_mean_lengths(30_000, 900, 40, seed)
    start = BEGAN + timedelta(days=seed)
    always = SharedHours.of(None, ZoneInfo("UTC"))
    chat = random_rates(MIDDLE, seed, seconds)
    return Night(MIDDLE, always, tickets, chat, start, start + timedelta(seconds=seconds), holdout=HOLDOUT)


def at_its_floor(night: Night) -> Night:
    """The same with nothing that batch could borrow."""
    own = night.site.capacity
    capacity = PoolCapacity(own.total, own.total - own.floor, own.floor)
    return replace(night, site=replace(night.site, capacity=capacity), holdout=0.0)


def looks(rows: Iterable[Row]) -> list[Look]:
    return [
        Look(row.at, row.chat.slots, row.arrivals, row.ttft_seconds, row.held.slots, row.rule == Rule.HOLDOUT, True)
        for row in rows
    ]


def ttfts(rows: Sequence[Row], held_out: set[int]) -> float:
    """The mean TTFT over the settled parts of the minutes that are not held out."""
    by_minute: dict[int, list[tuple[float, int]]] = {}
    for row in rows:
        settled = row.at.timestamp() % 60 >= SETTLE_SECONDS + SAMPLE_SECONDS
        if settled and row.ttft_seconds is not None and minute_of(row.at) not in held_out:
            by_minute.setdefault(minute_of(row.at), []).append((row.ttft_seconds, max(1, row.arrivals)))
    return fmean(fmean([one[0] for one in seen], [one[1] for one in seen]) for seen in by_minute.values())


def test_the_interval_contains_what_it_cost_in_truth() -> None:
    told = 0
    for seed in range(NIGHTS):
        as_it_was, quiet = play(night(seed)).rows, play(at_its_floor(night(seed))).rows
        found = receipt(looks(as_it_was))
        held_out = {minute_of(row.at) for row in as_it_was if row.rule == Rule.HOLDOUT}
        truth = ttfts(as_it_was, held_out) - ttfts(quiet, held_out)
        cost = found.cost
        assert cost is not None
        is_in = cost.low_seconds <= truth <= cost.high_seconds
        told += is_in
        print(
            f"\nnight {seed}: {truth:+.3f} s in truth; told {cost.seconds:+.3f} ({cost.low_seconds:+.3f} to "
            f"{cost.high_seconds:+.3f}) from {found.held_out} and {found.others} minutes{'' if is_in else ': missed'}",
            end="",
        )
    print(f"\nthe truth in {told} of {NIGHTS} intervals")
    assert told >= 0.9 * NIGHTS
