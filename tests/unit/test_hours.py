"""The hours in which the shared part of a pool is open, on ordinary days and where the clocks change."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.hours import SharedHours

BERLIN = ZoneInfo("Europe/Berlin")  # at UTC+1; +2 from 2026-03-29 02:00 to 2026-10-25 03:00 on its own clock
NIGHT = SharedHours.of(["22:00-05:00"], BERLIN)
CLOCK_TIMES = st.integers(0, 24 * 60 - 1).map(lambda minute: f"{minute // 60:02}:{minute % 60:02}")
RANGES = st.tuples(CLOCK_TIMES, CLOCK_TIMES).filter(lambda pair: pair[0] != pair[1]).map("-".join)


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def at(text: str, zone: ZoneInfo = BERLIN, fold: int = 0) -> datetime:
    """The instant at which a clock shows this."""
    return datetime.fromisoformat(text).replace(tzinfo=zone, fold=fold).astimezone(UTC)


@pytest.mark.parametrize(
    ("clock", "is_open"),
    [
        ("2026-11-30 21:59:59.999999", False),
        ("2026-11-30 22:00", True),
        ("2026-11-30 23:59", True),
        ("2026-12-01 00:00", True),
        ("2026-12-01 04:59:59", True),
        ("2026-12-01 05:00", False),
        ("2026-12-01 12:00", False),
    ],
)
def test_a_range_over_midnight(clock: str, is_open: bool) -> None:
    assert NIGHT.is_open(at(clock)) is is_open


def test_the_next_change_is_the_end_while_open_and_the_beginning_while_closed() -> None:
    assert NIGHT.next_change(at("2026-11-30 12:00")) == at("2026-11-30 22:00")
    assert NIGHT.next_change(at("2026-11-30 22:00")) == at("2026-12-01 05:00")
    assert NIGHT.next_change(at("2026-12-01 05:00")) == at("2026-12-01 22:00")


@pytest.mark.parametrize(
    "ranges", [None, ["00:00-24:00"], ["05:00-22:00", "22:00-05:00"], ["00:00-12:00", "11:00-00:00"]]
)
def test_always_open(ranges: list[str] | None) -> None:
    hours = SharedHours.of(ranges, BERLIN)
    for hour in range(24 * 7):
        instant = utc("2026-03-25") + timedelta(hours=hour)
        assert hours.is_open(instant)
        assert hours.next_change(instant) is None


def test_several_ranges_that_touch_or_overlap_are_one() -> None:
    hours = SharedHours.of(["03:00-05:00", "12:00-13:00", "22:00-03:00", "23:00-23:30"], BERLIN)
    assert hours.next_change(at("2026-11-30 22:30")) == at("2026-12-01 05:00")
    assert hours.next_change(at("2026-12-01 05:00")) == at("2026-12-01 12:00")


def test_a_range_may_end_at_midnight() -> None:
    for text in ("20:00-24:00", "20:00-00:00"):
        hours = SharedHours.of([text], BERLIN)
        assert hours.is_open(at("2026-11-30 23:59"))
        assert hours.next_change(at("2026-11-30 21:00")) == at("2026-12-01 00:00")


class TestTheClocksGoForward:
    """In Berlin 02:00 to 03:00 of 2026-03-29 does not exist."""

    def test_a_night_is_an_hour_shorter(self) -> None:
        opens = NIGHT.next_change(at("2026-03-28 12:00"))
        assert opens == utc("2026-03-28 21:00")
        assert NIGHT.next_change(opens) == utc("2026-03-29 03:00")

    def test_what_begins_in_the_gap_begins_at_its_end(self) -> None:
        hours = SharedHours.of(["02:30-05:00"], BERLIN)
        assert not hours.is_open(utc("2026-03-29 00:59:59"))
        assert hours.is_open(utc("2026-03-29 01:00"))

    def test_what_ends_in_the_gap_ends_at_its_end(self) -> None:
        hours = SharedHours.of(["22:00-02:30"], BERLIN)
        assert hours.next_change(utc("2026-03-29 00:00")) == utc("2026-03-29 01:00")

    def test_what_lies_in_the_gap_does_not_open_that_day(self) -> None:
        hours = SharedHours.of(["02:00-03:00"], BERLIN)
        assert hours.next_change(at("2026-03-28 12:00")) == at("2026-03-30 02:00")


class TestTheClocksGoBack:
    """In Berlin 02:00 to 03:00 of 2026-10-25 comes twice."""

    def test_a_night_is_an_hour_longer(self) -> None:
        opens = NIGHT.next_change(at("2026-10-24 12:00"))
        assert opens == utc("2026-10-24 20:00")
        assert NIGHT.next_change(opens) == utc("2026-10-25 04:00")

    def test_the_first_of_two_counts_for_the_beginning_and_nothing_closes_in_between(self) -> None:
        hours = SharedHours.of(["02:30-05:00"], BERLIN)
        assert hours.next_change(utc("2026-10-24 22:00")) == utc("2026-10-25 00:30")
        assert hours.is_open(at("2026-10-25 02:15", fold=1))
        assert hours.next_change(utc("2026-10-25 00:30")) == utc("2026-10-25 04:00")

    def test_the_first_of_two_counts_for_the_end(self) -> None:
        hours = SharedHours.of(["22:00-02:30"], BERLIN)
        assert hours.next_change(utc("2026-10-24 22:00")) == utc("2026-10-25 00:30")
        assert not hours.is_open(at("2026-10-25 02:15", fold=1))


def test_midnight_that_does_not_exist() -> None:
    cairo = ZoneInfo("Africa/Cairo")  # the clocks went from 00:00 to 01:00 on 2026-04-24
    hours = SharedHours.of(["20:00-24:00"], cairo)
    assert hours.next_change(at("2026-04-23 21:00", cairo)) == at("2026-04-24 01:00", cairo)


def test_a_day_that_does_not_exist() -> None:
    samoa = ZoneInfo("Pacific/Apia")  # 2011-12-30 was left out
    hours = SharedHours.of(["22:00-05:00"], samoa)
    assert hours.is_open(at("2011-12-29 23:00", samoa))
    assert hours.next_change(at("2011-12-29 23:00", samoa)) == at("2011-12-31 05:00", samoa)


@given(
    ranges=st.lists(RANGES, min_size=1, max_size=4),
    zone=st.sampled_from(["Europe/Berlin", "America/St_Johns", "Australia/Lord_Howe", "Africa/Cairo", "UTC"]),
    minutes=st.integers(0, 366 * 24 * 60),
)
def test_between_two_changes_nothing_changes_and_at_each_it_does(ranges: list[str], zone: str, minutes: int) -> None:
    hours = SharedHours.of(ranges, ZoneInfo(zone))
    instant = utc("2026-01-01") + timedelta(minutes=minutes)
    following = hours.next_change(instant)
    if following is None:
        assert hours.is_open(instant)
        return
    assert instant < following < instant + timedelta(days=3)
    before = following - timedelta(microseconds=1)
    middle = instant + (before - instant) / 2
    assert hours.is_open(instant) == hours.is_open(middle) == hours.is_open(before) != hours.is_open(following)
