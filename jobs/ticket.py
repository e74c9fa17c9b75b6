"""A support ticket as a source gives it, how it stands to a batch, and a row of the source that cannot be used."""

from dataclasses import dataclass
from datetime import datetime
from enum import Enum, auto


@dataclass(frozen=True, slots=True)
class Ticket:
    """One usable row: text already extracted and cleaned.

    `created_at` is aware, None where the source has no such column; a higher `priority` is done first; `line` is where
    the row begins in the source, from 1.
    """

    custom_id: str
    subject: str
    body: str
    created_at: datetime | None = None
    priority: int = 0
    line: int = 0


class Standing(Enum):
    """How a ticket stands to a batch."""

    NEW = auto()
    ALREADY = auto()
    CHANGED = auto()  # it is there with another text


@dataclass(frozen=True, slots=True)
class Rejection:
    """One row that cannot be used, with the reason a person needs to mend it."""

    line: int
    reason: str
    custom_id: str | None = None
