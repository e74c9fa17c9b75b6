"""A night minute by minute, and what one more slot of room was worth in it: pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from scheduler.level import BLOCK_SECONDS
from scheduler.observation import Observation

SLOPE_MINUTES = 10  # that are one reading of what a slot is worth
SLOPE_DOUBT = 0.3  # of what a slot is worth, relative to what a slot in use achieves, before the night has shown it


@dataclass(slots=True)
class Minute:
    """Stretches in a row in the open hours; `room_seconds` is the room that the chat left, times how long."""

    at: datetime
    seconds: float
    tokens: float
    room_seconds: float

    def add(self, seen: Observation, room: float) -> None:
        """Take in the stretch that follows."""
        self.at = seen.at
        self.seconds += seen.seconds
        self.tokens += seen.tokens
        self.room_seconds += room * seen.seconds

    @property
    def is_whole(self) -> bool:
        """True when the next stretch begins another."""
        return self.seconds >= BLOCK_SECONDS

    @property
    def middle(self) -> datetime:
        """The instant that stands for it."""
        return self.at - timedelta(seconds=self.seconds / 2)

    @property
    def rate(self) -> float:
        """Tokens a second."""
        return self.tokens / self.seconds

    @property
    def room(self) -> float:
        """What the chat left in the mean, in slots."""
        return self.room_seconds / self.seconds


def slope(minutes: Sequence[Minute], a_slot: float) -> float:
    """Tokens a second that one more slot of room is worth: a regression, shrunk to what a slot in use achieves.

    Over groups of minutes: room is only read at moments, and its noise would flatten the slope.
    """
    groups = [_merged(minutes[start : start + SLOPE_MINUTES]) for start in range(0, len(minutes), SLOPE_MINUTES)]
    if a_slot <= 0 or not groups:
        return a_slot
    whole = _merged(groups)
    both = sum((one.room - whole.room) * (one.rate - whole.rate) * one.seconds for one in groups)
    alone = sum((one.room - whole.room) ** 2 * one.seconds for one in groups)
    scatter = sum((one.rate - whole.rate) ** 2 * one.seconds for one in groups) / len(groups)
    doubt = scatter / (SLOPE_DOUBT * a_slot) ** 2
    return max(0.0, (both + doubt * a_slot) / (alone + doubt)) if alone + doubt > 0 else a_slot


def _merged(minutes: Sequence[Minute]) -> Minute:
    return Minute(
        minutes[-1].at,
        sum(one.seconds for one in minutes),
        sum(one.tokens for one in minutes),
        sum(one.room_seconds for one in minutes),
    )


def mean_rate(minutes: Sequence[Minute]) -> float:
    """Tokens a second over all of them; 0 where there are none."""
    seconds = sum(one.seconds for one in minutes)
    return sum(one.tokens for one in minutes) / seconds if seconds else 0.0
