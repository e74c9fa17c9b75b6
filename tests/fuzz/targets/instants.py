"""A date, a day or a time of day of any text: one instant that reads back as itself, or one line."""

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

from jobs.days import ONE_DAY, business_day, occurrence
from jobs.intake.dates import PLAUSIBLE_YEARS, WrongDate, instant_of
from tests.fuzz.claims import one_line
from tests.fuzz.target import Target
from tickets_batch.cli.times import oddity
from tickets_batch.errors import UserError

ZONES = tuple(map(ZoneInfo, ("Europe/Berlin", "UTC", "Africa/Cairo", "Pacific/Apia", "America/St_Johns")))
NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)


def judge(data: bytes, folder: Path) -> None:
    """A byte for the zone, two for the hour of now, and the text."""
    zone = ZONES[(data[:1] or b"\0")[0] % len(ZONES)]
    now = NOON - timedelta(hours=int.from_bytes(data[1:3], "big"))
    text = data[3:].replace(b"\0", b"").decode("utf-8", "replace")
    in_a_ticket(text, zone)
    as_a_day(text, zone, now)
    as_a_time(text, zone, now)


def in_a_ticket(text: str, zone: ZoneInfo) -> None:
    try:
        instant = instant_of(text, zone)
    except WrongDate as error:
        one_line(error)
        return
    assert instant.tzinfo is UTC
    assert PLAUSIBLE_YEARS.start - 1 <= instant.year <= max(PLAUSIBLE_YEARS.stop, 2286)  # ten digits of seconds
    if instant.astimezone(zone).year in PLAUSIBLE_YEARS and instant.year in PLAUSIBLE_YEARS:
        assert instant_of(instant.isoformat(), zone) == instant
        assert instant_of(f"{instant:%d.%m.%Y %H:%M:%S.%f} UTC", zone) == instant
        assert instant_of(f"{instant:%a, %d %b %Y %I:%M:%S.%f %p +0000}", zone) == instant


def as_a_day(text: str, zone: ZoneInfo, now: datetime) -> None:
    try:
        day = business_day(text, zone, now)
    except UserError as error:
        one_line(error)
        assert text not in ("today", "yesterday") or zone.key == "Pacific/Apia"
        return
    assert timedelta(hours=20) <= day.ends_at - day.starts_at <= timedelta(hours=28)
    assert day.starts_at in day
    assert day.ends_at not in day
    assert business_day(day.date.isoformat(), zone, now) == day
    if text == "today":
        assert now in day
    elif text == "yesterday":
        assert day.starts_at < now - ONE_DAY + timedelta(hours=6)


def as_a_time(text: str, zone: ZoneInfo, now: datetime) -> None:
    try:
        next_ = occurrence(text, zone, now)
    except UserError as error:
        one_line(error)
        assert not re.fullmatch(r"(?:[01]\d|2[0-3]):[0-5]\d", text, re.ASCII)
        return
    assert now < next_.at <= now + timedelta(hours=50)
    if not next_.is_skipped:
        assert f"{next_.at.astimezone(zone):%H:%M}" == text
    oddity("the deadline", text, zone, now)


TARGET = Target(
    judge,
    seeds=(
        *(b"\0\0\0" + text.encode() for text in (
            "2026-11-30 08:15:00", "2026-11-30T08:15:00.123Z", "30.11.2026 8:15", "30/11/2026", "11/30/2026 8:15 PM",
            "30/Nov/26 8:15 AM", "Mon, 30 Nov 2026 08:15:00 +0100", "November 30, 2026", "20261130T081500",
            "1764490500", "1764490500123", "2026-11-30 08:15 CET", "0001-01-01", "9999-12-31T23:59:59+14:00",
            "2026-10-25 02:30 CEST", "24:00", "07:00", "today", "yesterday", "2026-11-30", "２０２６-11-30")),
        *(bytes([zone]) + b"\x15\x40" + text for zone in range(5) for text in (b"00:00", b"02:30", b"2011-12-30")),
    ),
    words=("2026", "-", "/", ".", ":", " ", "T", "Z", "UTC", "GMT", "+01:00", "-23:59", "+99:99", "Nov", "Monday, ",
           "am", "PM", "CEST", "99999", "2200-01-01", "1970-01-01T00:00:00"),
    most_bytes=64,
)  # fmt: skip
