"""Times of day as people give them, and instants as people read them."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from jobs.days import next_occurrence, occurrence


def deadline_from(text: str, zone: ZoneInfo, now: datetime) -> datetime | None:
    """The next instant at which a clock in `zone` shows `text`, or None for "none". Raises UserError."""
    return None if text == "none" else next_occurrence(text, zone, now)


def oddity(what: str, text: str, zone: ZoneInfo, now: datetime) -> str | None:
    """A line for a person where the clocks of that night make `text` mean something else than it seems, else None.

    `what` is what the time is of, as in "the deadline". Raises UserError.
    """
    if text == "none":
        return None
    next_ = occurrence(text, zone, now)
    is_at = f"{what} is {_with_offset(next_.at, zone)}"
    if next_.is_skipped:
        return f"the clocks of {zone.key} skip {text} on {next_.day}: {is_at}, right after the gap"
    if next_.is_doubled:
        return f"the clocks of {zone.key} show {text} twice on {next_.day}: {is_at}, the first of the two"
    if next_.is_second_left:
        return f"the clocks of {zone.key} show {text} once more before, but the first of the two is over: {is_at}"
    return None


def _with_offset(instant: datetime, zone: ZoneInfo) -> str:
    """An instant on the clock of `zone` and its distance from UTC: the one thing that tells two equal times apart."""
    return f"{instant.astimezone(zone):%Y-%m-%d %H:%M (UTC%z)}"


def shown_instant(instant: datetime, zone: ZoneInfo) -> str:
    """An instant on the clock of `zone`, with the zone's name."""
    return f"{instant.astimezone(zone):%Y-%m-%d %H:%M} {zone.key}"


def iso(instant: datetime | None) -> str | None:
    """An instant in UTC as JSON carries it."""
    return instant.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z") if instant else None
