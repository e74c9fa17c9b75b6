"""When a ticket was created, in every form that exports write, read as one instant or refused with a reason."""

from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.days import day_of
from jobs.intake.dates import WrongDate, instant_of

BERLIN = ZoneInfo("Europe/Berlin")
MORNING = datetime(2026, 11, 30, 9, 15, tzinfo=UTC)  # 10:15 in Berlin


@pytest.mark.parametrize(
    "text",
    [
        "2026-11-30T10:15:00",
        "2026-11-30 10:15:00",
        "2026-11-30 10:15",
        "2026-11-30T10:15:00.000",
        "  2026-11-30 10:15:00  ",
        "2026-11-30T09:15:00Z",
        "2026-11-30T09:15:00+00:00",
        "2026-11-30T10:15:00+01:00",
        "2026-11-30T10:15:00.000+0100",  # Jira
        "2026-11-30 10:15:00+01",  # PostgreSQL
        "2026-11-30 10:15:00 +0100",  # Zendesk
        "2026-11-30 09:15:00 UTC",
        "2026-11-30 09:15:00 GMT",
        "2026-11-30 10:15:00 CET",
        "2026/11/30 10:15:00",
        "2026-11-30 10:15 am",
        "20261130T101500",
        "20261130101500",
        "30.11.2026 10:15",
        "30.11.2026, 10:15:00",
        "30.11.26 10:15",
        "30/11/2026 10:15",
        "30-11-2026 10:15",
        "11/30/2026 10:15 AM",
        "11/30/2026 10:15:00 A.M.",
        "30/Nov/26 10:15 AM",  # Jira
        "30-Nov-2026 10:15",
        "30 November 2026 10:15",
        "Nov 30, 2026 10:15 AM",
        "November 30, 2026, 10:15",
        "Mon, 30 Nov 2026 10:15:00 +0100",  # e-mail
        "Monday, November 30, 2026 10:15",
        "1796030100",
        "1796030100.0",
        "1796030100000",
    ],
)
def test_one_instant_in_many_forms(text: str) -> None:
    assert instant_of(text, BERLIN) == MORNING
    assert instant_of(text, BERLIN).tzinfo is UTC


@pytest.mark.parametrize(
    "value",
    [
        MORNING,
        MORNING.astimezone(BERLIN),
        datetime.fromisoformat("2026-11-30T10:15:00"),
        1796030100,
        1796030100.0,
        Decimal("1796030100000"),
    ],
)
def test_values_of_databases_and_json(value: object) -> None:
    assert instant_of(value, BERLIN) == MORNING


@pytest.mark.parametrize("value", ["2026-11-30", "30.11.2026", "20261130", "30 Nov 2026", date(2026, 11, 30)])
def test_a_date_alone_is_the_first_instant_of_that_day(value: object) -> None:
    assert instant_of(value, BERLIN) == datetime(2026, 11, 29, 23, tzinfo=UTC)


def test_a_date_alone_on_a_day_without_midnight() -> None:
    assert instant_of("2026-03-29", ZoneInfo("Asia/Beirut")) == datetime(2026, 3, 28, 22, tzinfo=UTC)


def test_noon_and_midnight_on_a_twelve_hour_clock() -> None:
    assert instant_of("11/30/2026 12:05 AM", BERLIN) == datetime(2026, 11, 29, 23, 5, tzinfo=UTC)
    assert instant_of("11/30/2026 12:05 PM", BERLIN) == datetime(2026, 11, 30, 11, 5, tzinfo=UTC)


def test_fractions_of_a_second_are_kept() -> None:
    assert instant_of("30.11.2026 10:15:00,25", BERLIN) == MORNING + timedelta(milliseconds=250)
    assert instant_of("1796030100250", BERLIN) == MORNING + timedelta(milliseconds=250)


def test_an_abbreviation_tells_the_two_halves_of_a_doubled_hour_apart() -> None:
    assert instant_of("2026-10-25 02:30:00 CEST", BERLIN) == datetime(2026, 10, 25, 0, 30, tzinfo=UTC)
    assert instant_of("2026-10-25 02:30:00 CET", BERLIN) == datetime(2026, 10, 25, 1, 30, tzinfo=UTC)


@pytest.mark.parametrize("text", ["04/05/2026", "4/5/2026 10:15", "12-11-2026 23:59", "01/02/2026 1:15 PM"])
def test_a_date_that_reads_two_ways_is_refused_rather_than_guessed(text: str) -> None:
    with pytest.raises(WrongDate, match="could be day/month or month/day: export dates as YYYY-MM-DD"):
        instant_of(text, BERLIN)


def test_day_and_month_alike_are_no_riddle() -> None:
    assert instant_of("05/05/2026 12:00", BERLIN) == datetime(2026, 5, 5, 10, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("", "is empty"),
        ("   ", "is empty"),
        (None, "is empty"),
        ("yesterday", '"yesterday" is not a date'),
        ("10:15", "is not a date"),
        ("2026-02-30 10:00", "is not in the calendar"),
        ("31.11.2026", "is not in the calendar"),
        ("2026-11-30 25:00", "is not in the calendar"),
        ("11/30/2026 13:00 PM", "not an hour of a 12-hour clock"),
        ("2026-13-01", "is not in the calendar"),
        ("13/13/2026", "is not in the calendar"),
        ("30/Nov/26 8:15 AM+99:99", "is not in the calendar"),
        ("30 Foo 2026", "names no month"),
        ("2026-11-30 10:15:00 PST", "names the zone PST, which is neither UTC nor Europe/Berlin"),
        ("2026-11-30 10:15:00 CEST", "names the zone CEST"),  # not at that time of the year
        ("46356.43", "neither seconds nor milliseconds since 1970"),  # a spreadsheet's day number
        ("12345", "neither seconds nor milliseconds since 1970"),
        ("1e9", "is not a date"),
        ("nan", "is not a date"),
        (float("nan"), "is not a date"),
        (True, "is neither text nor a number"),
        ({"at": 1}, "is neither text nor a number"),
        ("0001-01-01T00:00:00", "is no time at which a ticket was made"),  # what .NET writes for none
        ("9999-12-31", "is no time at which a ticket was made"),
        (date(9999, 12, 31), "is no time at which a ticket was made"),
        ("٢٠٢٦-١١-٣٠", "is not a date"),
    ],
)
def test_what_is_no_date_is_refused_with_a_reason(value: object, reason: str) -> None:
    with pytest.raises(WrongDate, match=reason.replace("(", r"\(")):
        instant_of(value, BERLIN)


def test_a_long_value_is_shown_in_part() -> None:
    with pytest.raises(WrongDate) as refused:
        instant_of("word " * 1000, BERLIN)
    assert len(str(refused.value)) < 150


@pytest.mark.parametrize("zone", ["Europe/Berlin", "Africa/Cairo", "Asia/Beirut", "America/Havana", "Asia/Kolkata"])
@given(st.datetimes(datetime.fromisoformat("2026-01-01"), datetime.fromisoformat("2026-12-31")))
def test_a_time_of_the_zone_always_falls_on_the_day_that_it_names(zone: str, local: datetime) -> None:
    assert instant_of(local.isoformat(sep=" "), ZoneInfo(zone)) in day_of(local.date(), ZoneInfo(zone))


@given(st.text(max_size=40) | st.integers() | st.floats() | st.decimals())
def test_any_value_is_a_date_or_refused(value: object) -> None:
    with suppress(WrongDate):
        assert instant_of(value, BERLIN).tzinfo is UTC
