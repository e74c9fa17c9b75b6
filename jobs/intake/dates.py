"""When a ticket was created, from the many ways in which exports write it."""

import re
from datetime import UTC, date, datetime, time
from decimal import Decimal
from zoneinfo import ZoneInfo

from jobs.days import first_instant
from jobs.intake.text import shown

MONTHS = {
    name: number
    for number, name in enumerate(
        ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"), 1
    )
}
PLAUSIBLE_YEARS = range(1970, 2200)  # the years 1, 1900 and 9999 stand for "no date" in many systems

_CLOCK = r"(?:,?[T\s]\s*(?P<clock>\d{1,2}:\d{2}(?::\d{2}(?:[.,]\d+)?)?)\s*(?P<half>[AaPp]\.?[Mm]\.?)?)?"
_ZONE = r"\s*(?P<zone>Z|(?:UTC|GMT)?[+-]\d{2}:?\d{2}|[A-Za-z]{2,5})?"
_WEEKDAY = r"(?:(?:mon|tue|wed|thu|fri|sat|sun)[a-z]*,?\s+)?"
_MONTH = r"(?P<name>[A-Za-z]{3,9})\.?"


def _form(date_part: str) -> re.Pattern[str]:
    return re.compile(_WEEKDAY + date_part + _CLOCK + _ZONE, re.ASCII | re.IGNORECASE)


FORMS = (
    _form(r"(?P<year>\d{4})(?P<mark>[-/.])(?P<month>\d{1,2})(?P=mark)(?P<day>\d{1,2})"),  # 2026-11-30, 2026/11/30
    _form(r"(?P<day>\d{1,2})\.(?P<month>\d{1,2})\.(?P<year>\d{4}|\d{2})"),  # 30.11.2026: dots put the day first
    _form(r"(?P<first>\d{1,2})(?P<mark>[/-])(?P<second>\d{1,2})(?P=mark)(?P<year>\d{4})"),  # 30/11/2026 or 11/30/2026
    _form(rf"(?P<day>\d{{1,2}})[\s/-]{_MONTH}[\s/-](?P<year>\d{{4}}|\d{{2}})"),  # 30 Nov 2026, 30/Nov/26
    _form(rf"{_MONTH}\s(?P<day>\d{{1,2}}),?\s(?P<year>\d{{4}})"),  # November 30, 2026
    _form(
        r"(?P<year>(?:19|20)\d{2})(?P<month>\d{2})(?P<day>\d{2})(?:T?(?P<compact>\d{6}))?"
    ),  # 20261130, 20261130T101500
)
EPOCH_SECONDS = (10**8, 10**10)  # 1973 to 2286
EPOCH_MILLISECONDS = (10**11, 10**13)


class WrongDate(ValueError):
    """The value is no date, or one that could be read in two ways; the message is the reason."""


def instant_of(value: object, zone: ZoneInfo) -> datetime:
    """The instant (UTC) that a cell, a JSON value or a database value means.

    Without a zone or an offset it is a time of `zone`; a date alone is the first instant of that day. Raises WrongDate.
    """
    if isinstance(value, str):
        return _from_text(value.strip(), zone)
    if isinstance(value, datetime):
        return _in_utc(value, zone)
    if isinstance(value, date):
        return _start_of(value, zone)
    if isinstance(value, int | float | Decimal) and not isinstance(value, bool):
        return _from_text(f"{value:f}" if isinstance(value, float | Decimal) else str(value), zone)
    raise WrongDate("is neither text nor a number" if value is not None else "is empty")


def _from_text(text: str, zone: ZoneInfo) -> datetime:
    if not text:
        raise WrongDate("is empty")
    if len(text) >= 16 and text[4:5] == "-":
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            pass  # not quite ISO: one of the forms below may fit
        else:
            return _in_utc(moment, zone)
    return _from_number(text) or _from_form(text, zone)


def _from_number(text: str) -> datetime | None:
    """The instant of a Unix time in seconds or milliseconds; None where the text is no such number."""
    if not re.fullmatch(r"\d{9,13}(\.\d+)?", text, re.ASCII):
        return None
    number = float(text)
    if EPOCH_SECONDS[0] <= number < EPOCH_SECONDS[1]:
        return datetime.fromtimestamp(number, UTC)
    if EPOCH_MILLISECONDS[0] <= number < EPOCH_MILLISECONDS[1]:
        return datetime.fromtimestamp(number / 1000, UTC)
    return None


def _from_form(text: str, zone: ZoneInfo) -> datetime:
    for form in FORMS:
        if match := form.fullmatch(text):
            return _from_parts(match.groupdict(), text, zone)
    if re.fullmatch(r"\d+([.,]\d+)?", text, re.ASCII):
        raise WrongDate(f'"{shown(text)}" is a number, but neither seconds nor milliseconds since 1970')
    raise WrongDate(f'"{shown(text)}" is not a date; write for example 2026-11-30 08:15:00')


def _from_parts(parts: dict[str, str | None], text: str, zone: ZoneInfo) -> datetime:
    try:
        day = _day(parts, text)
        local = datetime.combine(day, _clock(parts))
        if parts.get("clock") is None and parts.get("compact") is None and not parts.get("zone"):
            return _start_of(day, zone)
        return _in_zone(local, parts.get("zone") or "", text, zone)
    except WrongDate:
        raise
    except ValueError as error:
        raise WrongDate(f'"{shown(text)}" is not in the calendar: {error}') from error


def _day(parts: dict[str, str | None], text: str) -> date:
    year = int(parts["year"] or 0) + (2000 if len(parts["year"] or "") == 2 else 0)
    if first := parts.get("first"):
        day, month = _day_and_month(int(first), int(parts["second"] or 0), text)
        return date(year, month, day)
    if name := parts.get("name"):
        month_by_name = MONTHS.get(name[:3].lower())
        if month_by_name is None:
            raise WrongDate(f'"{shown(text)}" names no month')
        return date(year, month_by_name, int(parts["day"] or 0))
    return date(year, int(parts["month"] or 0), int(parts["day"] or 0))


def _day_and_month(first: int, second: int, text: str) -> tuple[int, int]:
    if first > 12 or first == second:
        return first, second
    if second > 12:
        return second, first
    raise WrongDate(
        f'"{shown(text)}" could be day/month or month/day: export dates as YYYY-MM-DD, or take every row with --all'
    )


def _clock(parts: dict[str, str | None]) -> time:
    if compact := parts.get("compact"):
        return time(int(compact[:2]), int(compact[2:4]), int(compact[4:]))
    if (clock := parts.get("clock")) is None:
        return time.min
    hours, minutes, *rest = clock.replace(",", ".").split(":")
    seconds, _, fraction = (rest[0] if rest else "0").partition(".")
    hour = int(hours)
    if half := parts.get("half"):
        if not 1 <= hour <= 12:
            raise ValueError(f"{hour} is not an hour of a 12-hour clock")
        hour = hour % 12 + (12 if half[0] in "Pp" else 0)
    return time(hour, int(minutes), int(seconds), int(fraction[:6].ljust(6, "0")))


def _in_zone(local: datetime, name: str, text: str, zone: ZoneInfo) -> datetime:
    if not name:
        return _in_utc(local, zone)
    if name.upper() in ("Z", "UTC", "GMT"):
        return _in_utc(local.replace(tzinfo=UTC), zone)
    if offset := re.fullmatch(r"(?:UTC|GMT)?([+-]\d{2}):?(\d{2})", name, re.IGNORECASE):
        return _in_utc(datetime.fromisoformat(f"{local.isoformat()}{offset[1]}:{offset[2]}"), zone)
    for fold in (0, 1):  # an abbreviation tells the two halves of a doubled hour apart
        there = local.replace(tzinfo=zone, fold=fold)
        if there.tzname() == name.upper():
            return _in_utc(there, zone)
    raise WrongDate(f'"{shown(text)}" names the zone {name}, which is neither UTC nor {zone.key} at that time')


def _start_of(day: date, zone: ZoneInfo) -> datetime:
    _refuse_implausible(day)
    return first_instant(day, time.min, zone)


def _in_utc(moment: datetime, zone: ZoneInfo) -> datetime:
    _refuse_implausible(moment)
    return (moment if moment.tzinfo else moment.replace(tzinfo=zone)).astimezone(UTC)


def _refuse_implausible(day: date) -> None:
    if day.year not in PLAUSIBLE_YEARS:
        raise WrongDate(f"{day} is no time at which a ticket was made")
