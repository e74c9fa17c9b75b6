"""The business day and the next time a clock shows an hour, in a named zone, right across each change of the clocks."""

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

from tickets_batch.errors import UsageError
from tickets_batch.words import printable

ONE_DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Day:
    """A calendar day of a zone as the instants from `starts_at` up to, not including, `ends_at` (both UTC).

    Days of one zone follow each other without a gap or an overlap, whether they have 23, 24 or 25 hours.
    """

    date: date
    zone: ZoneInfo
    starts_at: datetime
    ends_at: datetime

    def __post_init__(self) -> None:
        if self.starts_at.tzinfo is not UTC or self.ends_at.tzinfo is not UTC:
            raise ValueError("a day starts and ends at UTC instants")

    def __contains__(self, instant: datetime) -> bool:
        return self.starts_at <= instant < self.ends_at

    def __str__(self) -> str:
        return f"{self.date.isoformat()} ({self.zone.key})"


def business_day(name: str, zone: ZoneInfo, now: datetime) -> Day:
    """The day that `name` (today, yesterday or YYYY-MM-DD) means in `zone` at the instant `now`.

    Raises UsageError when `name` is none of these, or when the zone skipped that day.
    """
    if name in ("today", "yesterday"):
        today = _local(now, zone).date()
        return day_of(today if name == "today" else today - ONE_DAY, zone)
    if not re.fullmatch(r"\d{4}-\d{2}-\d{2}", name, re.ASCII):
        raise UsageError(f'"{printable(name)}" is not a day: write today, yesterday or a date as YYYY-MM-DD')
    try:
        return day_of(date.fromisoformat(name), zone)
    except (ValueError, OverflowError) as error:
        raise UsageError(
            f'"{printable(name)}" is not in the calendar: write today, yesterday or a date as YYYY-MM-DD'
        ) from error


def day_of(wanted: date, zone: ZoneInfo) -> Day:
    """The day `wanted` of `zone`. Raises UsageError when the zone skipped it, as Samoa did on 2011-12-30."""
    day = Day(wanted, zone, first_instant(wanted, time.min, zone), first_instant(wanted + ONE_DAY, time.min, zone))
    if day.starts_at == day.ends_at:
        raise UsageError(f"{zone.key} had no {wanted.isoformat()}: its clocks skipped that day")
    return day


@dataclass(frozen=True, slots=True)
class Occurrence:
    """The next instant (UTC) at which a clock shows a time of day, and what is odd about that time.

    `is_skipped`: the clocks skip it on `day`, and `at` is the first instant after the gap. `is_doubled`: they show it
    twice, and `at` is the first of the two. `is_second_left`: they show it once more before `at`, which does not count.
    """

    at: datetime
    day: date
    is_skipped: bool = False
    is_doubled: bool = False
    is_second_left: bool = False


def next_occurrence(clock_time: str, zone: ZoneInfo, now: datetime) -> datetime:
    """The next instant (UTC) at which a clock in `zone` shows `clock_time`, see `occurrence`. Raises UsageError."""
    return occurrence(clock_time, zone, now).at


def occurrence(clock_time: str, zone: ZoneInfo, now: datetime) -> Occurrence:
    """The first instant after `now` at which a clock in `zone` shows `clock_time` ("HH:MM").

    A time that the clocks skip counts as the first instant after the gap; one that they show twice, as the first of the
    two. Raises UsageError when `clock_time` is not such a time.
    """
    match = re.fullmatch(r"([01]\d|2[0-3]):([0-5]\d)", clock_time, re.ASCII)
    if match is None:
        raise UsageError(f'"{printable(clock_time)}" is not a time of day: write HH:MM, for example 07:00')
    wanted = time(int(match[1]), int(match[2]))
    day = _local(now, zone).date() - ONE_DAY  # a time that was skipped late yesterday may stand for an instant of today
    is_second_left = False
    while (at := first_instant(day, wanted, zone)) <= now:
        is_second_left = _second_instant(day, wanted, zone) > now
        day += ONE_DAY
    is_skipped = at.astimezone(zone).replace(tzinfo=None) != datetime.combine(day, wanted)
    is_doubled = _second_instant(day, wanted, zone) > at
    return Occurrence(at, day, is_skipped, is_doubled, is_second_left)


def first_instant(day: date, clock_time: time, zone: ZoneInfo) -> datetime:
    """The first instant (UTC) at which a clock in `zone` shows this time, or the end of the gap that skips it."""
    local = datetime.combine(day, clock_time, zone)
    instant = local.astimezone(UTC)
    if instant.astimezone(zone).replace(tzinfo=None) == local.replace(tzinfo=None):
        return instant
    # In a gap, fold=0 lands after the change of the clocks and fold=1 before it: halve what lies between to the second.
    before, after = local.replace(fold=1).astimezone(UTC), instant
    offset_after = after.astimezone(zone).utcoffset()
    while after - before > timedelta(seconds=1):
        middle = before + timedelta(seconds=(after - before) // timedelta(seconds=2))
        if middle.astimezone(zone).utcoffset() == offset_after:
            after = middle
        else:
            before = middle
    return after


def _second_instant(day: date, clock_time: time, zone: ZoneInfo) -> datetime:
    """The last instant at which a clock shows this time; before the gap where the clocks skip it."""
    return datetime.combine(day, clock_time, zone).replace(fold=1).astimezone(UTC)


def _local(now: datetime, zone: ZoneInfo) -> datetime:
    if now.tzinfo is None:
        raise ValueError("now must be an aware instant")
    return now.astimezone(zone)
