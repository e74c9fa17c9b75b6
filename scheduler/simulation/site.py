"""What a night is played on: engines behind one address, the pool's capacity, and how much chat there is."""

from dataclasses import dataclass, replace
from fractions import Fraction

from scheduler.capacity import PoolCapacity
from scheduler.simulation.engine.profile import EngineProfile

TTFT_TARGET_SECONDS = 0.8
DOOR_SECONDS = 0.3


@dataclass(frozen=True, slots=True)
class Site:
    """`chat_scale` multiplies the rates and bursts of the shapes, which were made for 20 slots at the default speed.

    A chat request that finds no room waits `door_seconds` before it is refused.
    """

    name: str
    profile: EngineProfile
    engines: int
    capacity: PoolCapacity
    chat_scale: Fraction
    ttft_target_seconds: float = TTFT_TARGET_SECONDS
    door_seconds: float = DOOR_SECONDS

    @property
    def slots(self) -> int:
        """Slots of all engines together."""
        return self.profile.slots * self.engines

    def with_priority(self) -> "Site":
        """The same engines with their own priority scheduling on."""
        return replace(self, profile=replace(self.profile, policy="priority"))
