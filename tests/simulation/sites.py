"""The sites of the table."""

from fractions import Fraction

from scheduler.capacity import Amount, PoolCapacity
from scheduler.simulation.engine.profile import EngineProfile
from scheduler.simulation.site import Site


def _capacity(total: Amount, chat: Amount, floor: Amount) -> PoolCapacity:
    return PoolCapacity(total=total, protected_interactive=chat, floor=floor)


MIDDLE = Site(
    "20 slots",
    EngineProfile(),
    1,
    _capacity(Amount(20, 120_000), Amount(8, 48_000), Amount(2, 12_000)),
    Fraction(1),
)
REPLICAS = Site(
    "two replicas of 20 slots",
    EngineProfile(),
    2,
    _capacity(Amount(40, 240_000), Amount(16, 96_000), Amount(4, 24_000)),
    Fraction(2),
)
SMALL = Site(
    "4 slots",
    EngineProfile(slots=4, kv_capacity_tokens=24_000),
    1,
    _capacity(Amount(4, 24_000), Amount(2, 12_000), Amount(1, 6_000)),
    Fraction(1, 5),
)
# Eight times as fast for each token, so that a step beside 256 others takes about what it takes beside 20; at this load
# the KV room is gone before the slots are.
LARGE = Site(
    "256 slots, bound by tokens",
    EngineProfile(
        slots=256,
        step_token_budget=8192,
        prefill_token_seconds=0.000_007_5,
        decode_sequence_seconds=0.000_02,
        kv_capacity_tokens=120_000,
    ),
    1,
    _capacity(Amount(256, 120_000), Amount(102, 48_000), Amount(25, 12_000)),
    Fraction(6),
)
SITES = {"middle": MIDDLE, "replicas": REPLICAS, "small": SMALL, "large": LARGE}
# So many copies of the public trace make chat alone use 40% of the engines, on the axis of which it uses more. Found by
# playing it (`occupancy.py`), and held to it by a test.
TRACE_COPIES = {MIDDLE.name: 0.2821, REPLICAS.name: 0.5635, SMALL.name: 0.0655, LARGE.name: 1.326}
