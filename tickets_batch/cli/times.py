"""Times of day as people give them, and instants as people read them."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from jobs.days import next_occurrence


def deadline_from(text: str, zone: ZoneInfo, now: datetime) -> datetime | None:
    """The next instant at which a clock in `zone` shows `text`, or None for "none". Raises UserError."""
    return None if text == "none" else next_occurrence(text, zone, now)


def shown_instant(instant: datetime, zone: ZoneInfo) -> str:
    """An instant on the clock of `zone`, with the zone's name."""
    return f"{instant.astimezone(zone):%Y-%m-%d %H:%M} {zone.key}"


def iso(instant: datetime | None) -> str | None:
    """An instant in UTC as JSON carries it."""
    return instant.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z") if instant else None
