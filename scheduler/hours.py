"""The hours in which the shared part of a pool is open to batch: pure, and right across each change of the clocks."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, time
from typing import Self
from zoneinfo import ZoneInfo

from jobs.days import ONE_DAY, first_instant

LOOKED_AT = range(-1, 4)  # days around the one asked about: no change of hours is further away


@dataclass(frozen=True, slots=True)
class _Range:
    begins: time
    ends: time
    ends_next_day: bool

    @classmethod
    def read(cls, text: str) -> Self:
        begins, ends = text.split("-")
        return cls(_time(begins), _time(ends), ends <= begins or ends == "24:00")


@dataclass(frozen=True, slots=True)
class SharedHours:
    """Every day's open hours on the clock of `zone`; outside of them batch stays at its floor.

    A time that the clocks skip counts as the end of the gap, one that they show twice as the first of the two: hours
    that lie in the gap do not open that day.
    """

    zone: ZoneInfo
    ranges: tuple[_Range, ...] | None = None

    @classmethod
    def of(cls, ranges: Iterable[str] | None, zone: ZoneInfo) -> Self:
        """From ranges as the settings have checked them, `HH:MM-HH:MM`; None: always open."""
        return cls(zone, None if ranges is None else tuple(_Range.read(text) for text in ranges))

    def is_open(self, instant: datetime) -> bool:
        """True when batch may use the shared part at this (aware) instant."""
        if self.ranges is None:
            return True
        return any(begins <= instant < ends for begins, ends in self._around(instant))

    def next_change(self, instant: datetime) -> datetime | None:
        """The first instant (UTC) after this one at which they open or close; None when they never do."""
        if self.ranges is None:
            return None
        spans = self._around(instant)
        changes = (edge for span in spans for edge in span if edge > instant)
        following = next(changes, None)
        return None if following is None or following == spans[-1][1] else following

    def _around(self, instant: datetime) -> list[tuple[datetime, datetime]]:
        """The open spans of the days around, in order, none touching another."""
        today = instant.astimezone(self.zone).date()
        spans: list[tuple[datetime, datetime]] = []
        for begins, ends in sorted(
            (
                first_instant(today + offset * ONE_DAY, one.begins, self.zone),
                first_instant(today + (offset + one.ends_next_day) * ONE_DAY, one.ends, self.zone),
            )
            for offset in LOOKED_AT
            for one in self.ranges or ()
        ):
            if spans and begins <= spans[-1][1]:
                spans[-1] = (spans[-1][0], max(ends, spans[-1][1]))
            elif begins < ends:
                spans.append((begins, ends))
        return spans


def _time(text: str) -> time:
    return time.min if text == "24:00" else time.fromisoformat(text)
