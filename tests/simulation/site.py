"""What a night is played on: engines behind one address, the pool's capacity, and how much chat there is."""

from dataclasses import dataclass, replace
from fractions import Fraction

from scheduler.capacity import Amount, PoolCapacity
from tests.engine.profile import EngineProfile

TTFT_TARGET_SECONDS = 0.8
DOOR_SECONDS = 0.3


@dataclass(frozen=True, slots=True)
class Site:
    """`chat_scale` multiplies the rates and bursts of the shapes, which were made for 20 slots at the default speed.

    `trace_copies` of the public trace make chat alone use 40% of the engines, on the axis of which it uses more. Found
    by playing it (`occupancy.py`), and held to it by a test. A chat request that finds no room waits `door_seconds`.
    """

    name: str
    profile: EngineProfile
    engines: int
    capacity: PoolCapacity
    chat_scale: Fraction
    trace_copies: float
    ttft_target_seconds: float = TTFT_TARGET_SECONDS
    door_seconds: float = DOOR_SECONDS

    @property
    def slots(self) -> int:
        """Slots of all engines together."""
        return self.profile.slots * self.engines

    def with_priority(self) -> "Site":
        """The same engines with their own priority scheduling on."""
        return replace(self, profile=replace(self.profile, policy="priority"))


def _capacity(total: Amount, chat: Amount, floor: Amount) -> PoolCapacity:
    return PoolCapacity(total=total, protected_interactive=chat, floor=floor)


MIDDLE = Site(
    "20 slots",
    EngineProfile(),
    1,
    _capacity(Amount(20, 120_000), Amount(8, 48_000), Amount(2, 12_000)),
    Fraction(1),
    0.2821,
)
REPLICAS = Site(
    "two replicas of 20 slots",
    EngineProfile(),
    2,
    _capacity(Amount(40, 240_000), Amount(16, 96_000), Amount(4, 24_000)),
    Fraction(2),
    0.5635,
)
SMALL = Site(
    "4 slots",
    EngineProfile(slots=4, kv_capacity_tokens=24_000),
    1,
    _capacity(Amount(4, 24_000), Amount(2, 12_000), Amount(1, 6_000)),
    Fraction(1, 5),
    0.0655,
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
    1.326,
)
SITES = {"middle": MIDDLE, "replicas": REPLICAS, "small": SMALL, "large": LARGE}
