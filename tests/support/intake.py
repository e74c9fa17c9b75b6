"""Sources of tickets as the tests of the intake write and read them."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from jobs.days import Day, day_of
from jobs.intake.source import Source, open_source
from jobs.ticket import Rejection, Ticket
from tickets_batch.errors import UserError
from tickets_batch.settings import Columns
from tickets_batch.settings import Source as SourceSettings

BERLIN = ZoneInfo("Europe/Berlin")
DAY = day_of(date(2026, 11, 30), BERLIN)
AT_NOON = datetime(2026, 11, 30, 11, tzinfo=UTC)  # 12:00 in Berlin


@dataclass
class Read:
    """What one reading of a source gave."""

    tickets: list[Ticket]
    rejections: list[Rejection]
    notes: tuple[str, ...]
    outside_day: int

    @property
    def bodies(self) -> dict[str, str]:
        """The body of each ticket by its id."""
        return {ticket.custom_id: ticket.body for ticket in self.tickets}

    @property
    def reasons(self) -> dict[int, str]:
        """The reason of each rejection by its line."""
        return {rejection.line: rejection.reason for rejection in self.rejections}


def read(source: Source) -> Read:
    rows = list(source)
    tickets = [row for row in rows if isinstance(row, Ticket)]
    rejections = [row for row in rows if isinstance(row, Rejection)]
    return Read(tickets, rejections, source.notes, source.outside_day)


def read_file(
    folder: Path,
    content: str | bytes,
    name: str = "tickets.csv",
    *,
    columns: Columns | None = None,
    day: Day = DAY,
    every_row: bool = False,
    **more: Any,
) -> Read:
    """Write `content` to a file of that name and read it as a source; `more` are other settings of it."""
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    settings = SourceSettings(path=str(path), columns=columns or Columns(), **more)
    return read(open_source(settings, day, every_row=every_row))


@contextmanager
def refused(*parts: str) -> Iterator[pytest.ExceptionInfo[UserError]]:
    """The block must raise a UserError of one line that contains all `parts`."""
    with pytest.raises(UserError) as caught:
        yield caught
    message = str(caught.value)
    assert "\n" not in message
    for part in parts:
        assert part in message
