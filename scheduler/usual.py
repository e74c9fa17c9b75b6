"""The chat that is usual at a time of day, from the samples of the nights before: pure."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from typing import Protocol, Self
from zoneinfo import ZoneInfo

from scheduler.limit import Rule

BIN_MINUTES = 30
NIGHT_WEIGHT = 0.8  # of a night against the one after it: a week ago counts a fifth of yesterday
MINUTES_A_DAY = 24 * 60
BINS = MINUTES_A_DAY // BIN_MINUTES


class ChatSample(Protocol):
    """What is read of a stored sample of a pool's load."""

    @property
    def at(self) -> datetime: ...
    @property
    def interactive_slots(self) -> int: ...
    @property
    def interactive_tokens(self) -> int: ...
    @property
    def reason(self) -> str: ...


@dataclass(frozen=True, slots=True)
class ChatLevel:
    """How much the chat has in flight in the mean."""

    slots: float
    tokens: float


@dataclass(frozen=True, slots=True)
class UsualLoad:
    """The mean chat of each half hour of the day on the clock of `zone`; newer nights weigh more."""

    zone: ZoneInfo
    bins: Mapping[int, ChatLevel]

    @classmethod
    def of(cls, samples: Iterable[ChatSample], zone: ZoneInfo) -> Self:
        """From samples of one pool in any order; a blind one says nothing of the chat and does not count."""
        seen = [(sample.at.astimezone(zone), sample) for sample in samples if sample.reason != Rule.BLIND]
        newest = max((at.date() for at, _ in seen), default=date.min)
        sums: defaultdict[int, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
        for at, sample in seen:
            weight = NIGHT_WEIGHT ** (newest - at.date()).days
            entry = sums[int(_minute(at) // BIN_MINUTES)]
            entry[0] += weight
            entry[1] += weight * sample.interactive_slots
            entry[2] += weight * sample.interactive_tokens
        levels = {
            number: ChatLevel(slots / weight, tokens / weight) for number, (weight, slots, tokens) in sums.items()
        }
        return cls(zone, levels)

    def at(self, instant: datetime) -> ChatLevel | None:
        """The usual chat at an (aware) instant, straight between the middles of the half hours.

        None: nothing is stored of this half hour.
        """
        minute = _minute(instant.astimezone(self.zone))
        place = minute / BIN_MINUTES - 0.5
        before = int(place // 1)
        share = place - before
        here = self.bins.get(int(minute // BIN_MINUTES))
        if here is None:
            return None
        left = self.bins.get(before % BINS, here)
        right = self.bins.get((before + 1) % BINS, here)
        return ChatLevel(
            left.slots + (right.slots - left.slots) * share, left.tokens + (right.tokens - left.tokens) * share
        )


def _minute(local: datetime) -> float:
    return local.hour * 60 + local.minute + local.second / 60
