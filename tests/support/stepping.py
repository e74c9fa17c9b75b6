"""Two clocks of one machine: a wall clock that can be stepped, and a monotonic one that cannot."""

from datetime import datetime, timedelta

from jobs.store.clock import Clock
from tests.support.store import START


class World:
    """A wall clock that can be stepped beside a monotonic one that cannot."""

    def __init__(self) -> None:
        self.wall, self.seconds, self.readings = START, 1_000.0, 0

    def read(self) -> datetime:
        self.readings += 1
        return self.wall

    def monotonic(self) -> float:
        return self.seconds

    def pass_seconds(self, seconds: float) -> None:
        self.wall += timedelta(seconds=seconds)
        self.seconds += seconds

    def step(self, seconds: float) -> None:
        self.wall += timedelta(seconds=seconds)

    def clock(self) -> Clock:
        """The clock of one process."""
        return Clock(self.read, self.monotonic)
