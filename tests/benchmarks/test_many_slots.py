"""Whether the rules hold where a pool is large: the same night on 20 slots and on up to 1,000, in virtual time."""

import time
from dataclasses import replace
from fractions import Fraction

import pytest

from scheduler.capacity import Amount, PoolCapacity
from scheduler.simulation.site import Site
from tests.simulation.rows import ALONE, CAP, OURS, Night, Result, play
from tests.simulation.sites import MIDDLE

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(3600)]

SECONDS = {1: 300.0, 10: 120.0, 50: 60.0}  # by how many engines there are
SHAPE, KIND = "burst", "short"
MOST_P99 = 1.1  # of the chat's alone
LEAST_SHARE = 0.2  # of the tickets that as many slots get done where they are a pool of 20 each


def fleet(engines: int) -> Site:
    """So many of the middle site's engines behind one address, with as much more chat."""

    def scaled(amount: Amount) -> Amount:
        return Amount(amount.slots * engines, amount.tokens * engines)

    capacity = MIDDLE.capacity
    return replace(
        MIDDLE,
        name=f"{MIDDLE.slots * engines:,} slots",
        engines=engines,
        capacity=PoolCapacity(scaled(capacity.total), scaled(capacity.protected_interactive), scaled(capacity.floor)),
        chat_scale=Fraction(engines),
    )


def test_a_pool_of_a_thousand_slots_is_shared_too() -> None:
    print(f"\n{SHAPE} chat, {KIND} tickets, engines of {MIDDLE.slots} slots behind one address, in virtual time")
    found: dict[int, dict[str, Result]] = {}
    for engines, seconds in SECONDS.items():
        for row in (ALONE, OURS, f"{CAP}{MIDDLE.slots // 2 * engines}"):
            began = time.process_time()
            result = play(Night(fleet(engines), SHAPE, KIND, 1, seconds, row))
            spent = time.process_time() - began
            found.setdefault(engines, {})[row] = result
            print(
                f"  {fleet(engines).name:12} {row:10} TTFT p50 {result.ttft_p50:.3f} s, p99 {result.ttft_p99:.3f}; "
                f"{result.tickets_per_second:6.1f} tickets/s, {result.tickets_per_second / engines:.2f} an engine; "
                f"{spent / seconds:.3f} s of CPU a second"
            )
    for engines, rows in found.items():
        assert rows[OURS].ttft_p99 <= MOST_P99 * rows[ALONE].ttft_p99
        assert rows[OURS].tickets_per_second >= LEAST_SHARE * engines * found[1][OURS].tickets_per_second
