"""One pass over a source: records in, tickets out, and a count of everything that was skipped or mended."""

import re
from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from typing import NamedTuple, Self
from uuid import UUID

from jobs.days import Day
from jobs.intake.dates import WrongDate, instant_of
from jobs.intake.text import html_to_text, looks_like_html, tidy
from jobs.text import storable
from jobs.ticket import Rejection, Ticket
from tickets_batch.settings import Urgent

TEXT_LIMIT_CHARACTERS = 1_000_000
ID_LIMIT_CHARACTERS = 500
PRIORITY_LIMIT = 2**31 - 1  # what an INTEGER column holds
PARTS = ("id", "subject", "body", "created_at", "priority", "urgent", "updated_at")  # in the order of a record
PRIORITY_WORDS = {
    "lowest": -2,
    "low": -1,
    "normal": 0,
    "medium": 0,
    "high": 1,
    "urgent": 2,
    "highest": 2,
    "critical": 2,
}


class Record(NamedTuple):
    """The parts of one row as the source gives them: text, numbers, dates, None, or what else JSON can hold."""

    line: int
    custom_id: object
    subject: object = None
    body: object = None
    created_at: object = None
    priority: object = None
    urgent: object = None
    updated_at: object = None

    @classmethod
    def of(cls, line: int, parts: Mapping[str, object]) -> Self:
        """The record of a row by its parts, of which all but the id may be missing."""
        return cls(line, parts["id"], *map(parts.get, PARTS[1:]))


class Unusable(ValueError):
    """The record is no ticket; the message is the reason."""


class Reading:
    """Turns records into tickets and keeps count.

    `picks_by_date` leaves out, and counts in `outside_day`, what was not created on `day`; without it a date that
    cannot be read costs no ticket. Where there is a rule for `urgent` tickets, it alone sets their priority.
    """

    def __init__(self, day: Day, *, picks_by_date: bool, urgent: Urgent | None = None) -> None:
        self.outside_day = 0
        self._urgent = None if urgent is None else frozenset(_folded(value) for value in urgent.values)
        self._urgent_tickets = 0
        self._day = day
        self._picks_by_date = picks_by_date
        self._counts: Counter[str] = Counter()

    def ticket(self, record: Record) -> Ticket | Rejection | None:
        """The ticket, the reason why there is none, or None for a record of another day."""
        try:
            created_at = self._created_at(record.created_at)
            if self._picks_by_date and (created_at is None or created_at not in self._day):
                self.outside_day += 1
                return None
            custom_id = self._custom_id(record.custom_id)
            subject = self._text(record.subject, "subject")
            body = self._text(record.body, "body")
            if not subject and not body:
                raise Unusable("subject and body are both empty")
        except Unusable as error:
            return Rejection(record.line, storable(str(error)), id_of_unusable(record.custom_id))
        priority = self._priority(record.priority) if self._urgent is None else self._urgency(record.urgent)
        return Ticket(custom_id, subject, body, created_at, priority, record.line)

    @property
    def notes(self) -> tuple[str, ...]:
        """What was mended, one line each with its count."""
        mended = tuple(f"{what}: {count:,}" for what, count in self._counts.items())
        return (
            mended if self._urgent is None else (*mended, f"urgent tickets, which go first: {self._urgent_tickets:,}")
        )

    def _created_at(self, value: object) -> datetime | None:
        if value is None and not self._picks_by_date:
            return None
        try:
            return instant_of(value, self._day.zone)
        except WrongDate as error:
            if self._picks_by_date:
                raise Unusable(f"created_at {error}") from error
            self._counts["dates that cannot be read, their rows taken all the same"] += 1
            return None

    def _custom_id(self, value: object) -> str:
        custom_id = storable(_as_text(value, "id")).strip()
        if not custom_id:
            raise Unusable("the id is empty")
        if len(custom_id) > ID_LIMIT_CHARACTERS:
            raise Unusable(f"the id is longer than {ID_LIMIT_CHARACTERS} characters")
        return custom_id

    def _text(self, value: object, part: str) -> str:
        text = _as_text(value, part)
        if "<" in text and looks_like_html(text):
            self._counts["HTML, of which only the text was kept"] += 1
            text = html_to_text(text)
        text = tidy(text)
        if len(text) > TEXT_LIMIT_CHARACTERS:
            self._counts[f"texts cut at {TEXT_LIMIT_CHARACTERS:,} characters"] += 1
            text = text[:TEXT_LIMIT_CHARACTERS]
        clean = storable(text)
        if clean != text:
            self._counts["texts with NUL or half characters, which were replaced"] += 1
        return clean

    def _priority(self, value: object) -> int:
        """A number, or one of the usual words; anything else counts as normal (0)."""
        if value is None or not (text := str(value).strip().lower()):
            return 0
        if text in PRIORITY_WORDS:
            return PRIORITY_WORDS[text]
        if re.fullmatch(r"[+-]?\d{1,10}(\.0*)?", text, re.ASCII):
            return max(-PRIORITY_LIMIT, min(PRIORITY_LIMIT, int(float(text))))
        self._counts["priorities not understood, taken as normal"] += 1
        return 0

    def _urgency(self, value: object) -> int:
        """Urgent when the value, or one of a list of them, is one that the rule names."""
        values = value if isinstance(value, list) else [value]
        if self._urgent is None or self._urgent.isdisjoint(_folded(str(item)) for item in values if item is not None):
            return 0
        self._urgent_tickets += 1
        return PRIORITY_WORDS["urgent"]


def _folded(text: str) -> str:
    return text.strip().casefold()


def _as_text(value: object, part: str) -> str:
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).decode("utf-8", "replace")
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal | UUID):
        kind = {dict: "an object", list: "a list", bool: "true or false"}.get(type(value), type(value).__name__)
        raise Unusable(f"the {part} is {kind}, not text: name a field that holds text, with dots where it is nested")
    return str(value)


def id_of_unusable(value: object) -> str | None:
    """The id of a row that cannot be used, as far as it has one."""
    if not isinstance(value, str | int):
        return None
    return storable(str(value)).strip()[:ID_LIMIT_CHARACTERS] or None
