"""The business day and the next 07:00, on every kind of day that a zone has."""

from datetime import UTC, date, datetime, time, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.days import Day, business_day, day_of, first_instant, next_occurrence, occurrence
from tickets_batch.errors import UserError

BERLIN = ZoneInfo("Europe/Berlin")
NEW_YORK = ZoneInfo("America/New_York")
ZONES = [
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",
    "Asia/Kolkata",
    "Africa/Cairo",
    "Asia/Beirut",
    "America/Havana",
    "Pacific/Apia",
    "Pacific/Kiritimati",
    "UTC",
]


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def instants(first: str, last: str) -> st.SearchStrategy[datetime]:
    return st.datetimes(datetime.fromisoformat(first), datetime.fromisoformat(last), timezones=st.just(UTC))


def hours(day: Day) -> float:
    return (day.ends_at - day.starts_at) / timedelta(hours=1)


@pytest.mark.parametrize(
    ("zone", "day", "starts_at", "long"),
    [
        ("UTC", "2026-11-30", "2026-11-30 00:00", 24),
        ("Europe/Berlin", "2026-11-30", "2026-11-29 23:00", 24),
        ("Europe/Berlin", "2026-03-29", "2026-03-28 23:00", 23),
        ("Europe/Berlin", "2026-10-25", "2026-10-24 22:00", 25),
        ("America/New_York", "2026-03-08", "2026-03-08 05:00", 23),
        ("America/New_York", "2026-11-01", "2026-11-01 04:00", 25),
        ("Australia/Lord_Howe", "2026-04-05", "2026-04-04 13:00", 24.5),  # its clocks move by half an hour
        ("Australia/Lord_Howe", "2026-10-04", "2026-10-03 13:30", 23.5),
        ("Asia/Kolkata", "2026-03-29", "2026-03-28 18:30", 24),
        ("Africa/Cairo", "2026-04-24", "2026-04-23 22:00", 23),  # midnight does not exist: the day begins at 01:00
        ("Africa/Cairo", "2026-10-29", "2026-10-28 21:00", 25),  # 23:00 to midnight comes twice
        ("Asia/Beirut", "2026-03-29", "2026-03-28 22:00", 23),  # midnight does not exist
        ("Asia/Beirut", "2026-10-24", "2026-10-23 21:00", 25),
        ("America/Havana", "2026-11-01", "2026-11-01 04:00", 25),  # midnight comes twice: the first counts
    ],
)
def test_a_day_begins_at_its_first_instant_and_is_as_long_as_the_clocks_make_it(
    zone: str, day: str, starts_at: str, long: float
) -> None:
    made = business_day(day, ZoneInfo(zone), utc("2026-06-01 12:00"))
    assert made.date == date.fromisoformat(day)
    assert made.starts_at == utc(starts_at)
    assert hours(made) == long


@pytest.mark.parametrize("zone", ZONES)
def test_the_days_of_a_year_follow_each_other_without_gap_or_overlap(zone: str) -> None:
    days = [day_of(date(2026, 1, 1) + timedelta(days=number), ZoneInfo(zone)) for number in range(366)]
    for day, following in pairwise(days):
        assert day.ends_at == following.starts_at
        assert day.ends_at not in day
        assert day.ends_at in following
        assert day.ends_at - timedelta(microseconds=1) in day
        assert day.starts_at.astimezone(day.zone).date() == day.date
    assert sum(hours(day) for day in days[:365]) == 365 * 24


@pytest.mark.parametrize(
    ("now", "today"),
    [
        ("2026-11-29 22:59:59.999999", "2026-11-29"),
        ("2026-11-29 23:00:00", "2026-11-30"),
        ("2026-11-30 22:59:59", "2026-11-30"),
        ("2026-03-28 23:30:00", "2026-03-29"),
        ("2026-03-29 21:59:59", "2026-03-29"),
        ("2026-03-29 22:00:00", "2026-03-30"),
        ("2026-10-25 22:30:00", "2026-10-25"),
        ("2026-10-25 23:00:00", "2026-10-26"),
    ],
)
def test_today_changes_at_the_zones_midnight(now: str, today: str) -> None:
    day = business_day("today", BERLIN, utc(now))
    assert day.date == date.fromisoformat(today)
    assert utc(now) in day
    assert business_day("yesterday", BERLIN, utc(now)).ends_at == day.starts_at


def test_today_is_another_day_elsewhere() -> None:
    now = utc("2026-11-30 11:00")
    assert business_day("today", ZoneInfo("Pacific/Kiritimati"), now).date == date(2026, 12, 1)
    assert business_day("today", ZoneInfo("Pacific/Niue"), now).date == date(2026, 11, 30)
    assert str(business_day("today", NEW_YORK, now)) == "2026-11-30 (America/New_York)"


@given(
    zone=st.sampled_from(ZONES).map(ZoneInfo),
    now=instants("2000-01-01", "2037-12-31"),
)
def test_now_always_lies_in_today(zone: ZoneInfo, now: datetime) -> None:
    assert now in business_day("today", zone, now)


@pytest.mark.parametrize("name", ["", "tomorrow", "Today", "20261130", "2026-W48-1", "2026-11-30T00:00", "30.11.2026"])
def test_a_name_that_is_no_day_is_refused_with_what_is_accepted(name: str) -> None:
    with pytest.raises(UserError, match="write today, yesterday or a date as YYYY-MM-DD"):
        business_day(name, BERLIN, utc("2026-11-30 12:00"))


@pytest.mark.parametrize("name", ["2026-02-29", "2026-13-01", "0000-01-01", "9999-12-31", "0001-01-01"])
def test_a_date_outside_the_calendar_is_refused(name: str) -> None:
    with pytest.raises(UserError, match="is not in the calendar"):
        business_day(name, BERLIN, utc("2026-11-30 12:00"))


def test_a_day_that_the_zone_skipped_is_refused() -> None:
    with pytest.raises(UserError, match="Pacific/Apia had no 2011-12-30"):
        business_day("2011-12-30", ZoneInfo("Pacific/Apia"), utc("2011-12-29 12:00"))


def test_naive_instants_are_refused() -> None:
    naive = datetime(2026, 11, 30)  # noqa: DTZ001
    with pytest.raises(ValueError, match="aware"):
        business_day("today", BERLIN, naive)
    with pytest.raises(ValueError, match="UTC"):
        Day(date(2026, 11, 30), BERLIN, naive, naive)


@pytest.mark.parametrize(
    ("zone", "clock_time", "now", "expected"),
    [
        ("Europe/Berlin", "07:00", "2026-11-30 05:59:59", "2026-11-30 06:00"),
        ("Europe/Berlin", "07:00", "2026-11-30 06:00:00", "2026-12-01 06:00"),  # the instant itself is not after it
        ("Europe/Berlin", "07:00", "2026-11-29 23:30:00", "2026-11-30 06:00"),
        ("Europe/Berlin", "00:00", "2026-11-30 12:00:00", "2026-11-30 23:00"),
        ("Europe/Berlin", "07:00", "2026-03-28 22:00:00", "2026-03-29 05:00"),  # the night of 23 hours
        ("Europe/Berlin", "07:00", "2026-10-24 22:00:00", "2026-10-25 06:00"),  # the night of 25 hours
        ("Europe/Berlin", "02:30", "2026-03-29 00:00:00", "2026-03-29 01:00"),  # skipped: 03:00, after the gap
        ("Europe/Berlin", "02:00", "2026-03-29 00:00:00", "2026-03-29 01:00"),
        ("Europe/Berlin", "03:00", "2026-03-29 00:00:00", "2026-03-29 01:00"),
        ("Europe/Berlin", "02:30", "2026-03-29 01:00:00", "2026-03-30 00:30"),
        ("Europe/Berlin", "02:30", "2026-10-25 00:00:00", "2026-10-25 00:30"),  # doubled: the first of the two
        ("Europe/Berlin", "02:30", "2026-10-25 00:30:00", "2026-10-26 01:30"),  # the second does not count
        ("America/New_York", "02:30", "2026-03-08 06:00:00", "2026-03-08 07:00"),
        ("America/New_York", "01:30", "2026-11-01 04:00:00", "2026-11-01 05:30"),
        ("Australia/Lord_Howe", "02:15", "2026-10-03 12:00:00", "2026-10-03 15:30"),
        ("Australia/Lord_Howe", "01:45", "2026-04-04 12:00:00", "2026-04-04 14:45"),
        ("Asia/Kolkata", "07:00", "2026-11-30 00:00:00", "2026-11-30 01:30"),
        ("Africa/Cairo", "00:30", "2026-04-23 12:00:00", "2026-04-23 22:00"),
        ("Asia/Beirut", "00:00", "2026-03-28 12:00:00", "2026-03-28 22:00"),
        ("Pacific/Apia", "07:00", "2011-12-29 18:00:00", "2011-12-30 10:00"),  # all of the 30th is skipped
    ],
)
def test_the_next_occurrence_is_the_first_instant_after_now_that_shows_the_time(
    zone: str, clock_time: str, now: str, expected: str
) -> None:
    assert next_occurrence(clock_time, ZoneInfo(zone), utc(now)) == utc(expected)


@given(
    zone=st.sampled_from(ZONES).map(ZoneInfo),
    clock_time=st.times().map(lambda moment: f"{moment:%H:%M}"),
    now=instants("2012-01-03", "2037-12-31"),
)
def test_a_deadline_comes_within_a_day_of_any_length_and_not_before_now(
    zone: ZoneInfo, clock_time: str, now: datetime
) -> None:
    instant = next_occurrence(clock_time, zone, now)
    assert timedelta(0) < instant - now <= timedelta(hours=26)
    shown = instant.astimezone(zone)
    if f"{shown:%H:%M}" != clock_time:
        before = (instant - timedelta(seconds=1)).astimezone(zone)
        assert before.utcoffset() != shown.utcoffset(), "only a gap in the clocks moves a deadline"
        assert f"{before:%H:%M}" < clock_time or before.date() < shown.date()


@pytest.mark.parametrize("text", ["", "7:00", "24:00", "07:60", "07:00:00", "none", "٠٧:٠٠"])
def test_a_text_that_is_no_time_of_day_is_refused(text: str) -> None:
    with pytest.raises(UserError, match="write HH:MM, for example 07:00"):
        next_occurrence(text, BERLIN, utc("2026-11-30 12:00"))


def test_the_first_instant_of_a_time_that_exists_once_is_that_time() -> None:
    assert first_instant(date(2026, 7, 1), time(7), BERLIN) == utc("2026-07-01 05:00")


@pytest.mark.parametrize(
    ("zone", "clock_time", "now", "at", "odd"),
    [
        ("Europe/Berlin", "07:00", "2026-03-28 22:00", "2026-03-29 05:00", None),
        ("Europe/Berlin", "02:00", "2026-03-28 22:00", "2026-03-29 01:00", "skipped"),
        ("Europe/Berlin", "02:59", "2026-03-28 22:00", "2026-03-29 01:00", "skipped"),
        ("Europe/Berlin", "03:00", "2026-03-28 22:00", "2026-03-29 01:00", None),
        ("Europe/Berlin", "01:59", "2026-10-24 22:00", "2026-10-24 23:59", None),
        ("Europe/Berlin", "02:00", "2026-10-24 22:00", "2026-10-25 00:00", "doubled"),
        ("Europe/Berlin", "02:59", "2026-10-24 22:00", "2026-10-25 00:59", "doubled"),
        ("Europe/Berlin", "03:00", "2026-10-24 22:00", "2026-10-25 02:00", None),
        ("Europe/Berlin", "02:30", "2026-10-25 00:30", "2026-10-26 01:30", "second left"),
        ("Europe/Berlin", "02:30", "2026-10-25 01:29", "2026-10-26 01:30", "second left"),
        ("Europe/Berlin", "02:30", "2026-10-25 01:30", "2026-10-26 01:30", None),
        ("America/New_York", "07:00", "2026-03-08 04:00", "2026-03-08 11:00", None),
        ("America/New_York", "02:30", "2026-03-08 04:00", "2026-03-08 07:00", "skipped"),
        ("America/New_York", "01:30", "2026-11-01 04:00", "2026-11-01 05:30", "doubled"),
        ("America/New_York", "07:00", "2026-11-01 04:00", "2026-11-01 12:00", None),
        ("Australia/Lord_Howe", "02:15", "2026-10-03 12:00", "2026-10-03 15:30", "skipped"),
        ("Australia/Lord_Howe", "02:30", "2026-10-03 12:00", "2026-10-03 15:30", None),
        ("Australia/Lord_Howe", "01:45", "2026-04-04 12:00", "2026-04-04 14:45", "doubled"),
        ("Australia/Lord_Howe", "01:29", "2026-04-04 12:00", "2026-04-04 14:29", None),
        ("Asia/Kolkata", "02:30", "2026-03-28 20:00", "2026-03-28 21:00", None),
        ("Asia/Kolkata", "02:30", "2026-10-24 20:00", "2026-10-24 21:00", None),
        ("Africa/Cairo", "00:00", "2026-04-23 12:00", "2026-04-23 22:00", "skipped"),
        ("Africa/Cairo", "00:59", "2026-04-23 12:00", "2026-04-23 22:00", "skipped"),
        ("Africa/Cairo", "01:00", "2026-04-23 12:00", "2026-04-23 22:00", None),
        ("Africa/Cairo", "07:00", "2026-04-23 20:00", "2026-04-24 04:00", None),
        ("Africa/Cairo", "23:30", "2026-10-29 12:00", "2026-10-29 20:30", "doubled"),
        ("Africa/Cairo", "00:00", "2026-10-29 12:00", "2026-10-29 22:00", None),
        ("Africa/Cairo", "07:00", "2026-10-29 12:00", "2026-10-30 05:00", None),
        ("Pacific/Apia", "07:00", "2011-12-29 18:00", "2011-12-30 10:00", "skipped"),
    ],
)
def test_what_is_odd_about_a_time_is_known(zone: str, clock_time: str, now: str, at: str, odd: str | None) -> None:
    found = occurrence(clock_time, ZoneInfo(zone), utc(now))
    assert found.at == utc(at)
    named = {"skipped": found.is_skipped, "doubled": found.is_doubled, "second left": found.is_second_left}
    assert [name for name, is_so in named.items() if is_so] == ([odd] if odd else [])


def test_the_day_of_a_skipped_midnight_is_the_day_that_begins_without_it() -> None:
    assert occurrence("00:00", ZoneInfo("Africa/Cairo"), utc("2026-04-23 12:00")).day == date(2026, 4, 24)
