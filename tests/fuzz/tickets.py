"""Files of tickets as a target reads them."""

from pathlib import Path
from typing import Any

from jobs.intake.source import open_source
from jobs.ticket import Rejection, Ticket
from tests.fuzz.claims import one_line, storable
from tests.support.intake import DAY
from tickets_batch.errors import UserError
from tickets_batch.settings import Columns
from tickets_batch.settings import Source as SourceSettings

Rows = list[Ticket | Rejection]


def rows_of(path: Path, content: bytes, *, columns: Columns | None = None, **more: Any) -> Rows | None:
    """The rows of a file with this content, each of them sound, and twice the same; None where it was refused."""
    path.write_bytes(content)
    settings = SourceSettings(path=str(path), columns=columns or Columns(), **more)
    try:
        source = open_source(settings, DAY, every_row=True)
        rows = list(source)
        again = list(source)
    except UserError as refused:
        one_line(refused)
        return None
    assert rows == again, "a second reading gives other rows"
    for row in rows:
        _check(row)
    for note in source.notes:
        storable(note)
        assert "\n" not in note
    return rows


def texts_of(rows: Rows) -> list[tuple[str | None, str, str]]:
    """What a person would call the content: the id, and the two texts or the reason why there are none."""
    return [
        (row.custom_id, row.subject, row.body) if isinstance(row, Ticket) else (row.custom_id, "", row.reason)
        for row in rows
    ]


def _check(row: Ticket | Rejection) -> None:
    assert row.line >= 1
    if row.custom_id is not None:
        storable(row.custom_id)
        assert row.custom_id == row.custom_id.strip()
        assert 0 < len(row.custom_id) <= 500
    if isinstance(row, Rejection):
        storable(row.reason)
        assert "\n" not in row.reason
        assert 0 < len(row.reason) < 1000
        return
    assert row.custom_id
    assert row.subject or row.body
    for text in (row.subject, row.body):
        storable(text)
        assert "\r" not in text
        assert text == text.strip()
    assert row.created_at is None or row.created_at.utcoffset() is not None
    assert -(2**31) < row.priority < 2**31
