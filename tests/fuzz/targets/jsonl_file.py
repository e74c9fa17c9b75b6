"""A JSONL file of any bytes: each line that is not blank is one row, and where it is a plain object, that ticket."""

import json
from pathlib import Path
from typing import Any

from jobs.ticket import Ticket
from tests.fuzz.claims import is_plain
from tests.fuzz.target import Target
from tests.fuzz.tickets import rows_of
from tests.hostile.texts import TEXTS
from tickets_batch.settings import Columns

BLANK = " \t\r\n\0"
LINE = b'{"id": 1, "subject": "s", "body": "b"}\n'
NESTED = Columns(id="ticket.id", subject="fields.0.text", body="fields.7")


def judge(data: bytes, folder: Path) -> None:
    rows = rows_of(folder / "tickets.jsonl", data)
    rows_of(folder / "tickets.jsonl", data, columns=NESTED, urgent={"column": "tags.1", "values": ["vip"]})
    lines = lines_in(data)
    if rows is None or lines is None:
        return
    assert [row.line for row in rows] == list(lines)
    for row, line in zip(rows, lines.values(), strict=True):
        if (wanted := simply_read(line)) and isinstance(row, Ticket):
            assert (row.custom_id, row.subject, row.body) == wanted
        elif wanted:
            assert len(wanted[0]) > 500, row


def lines_in(data: bytes) -> dict[int, str] | None:
    """What stands in each line by its number; None where that depends on more than line feeds."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    if "\r" in text or "\0" in text or text.startswith("\ufeff"):
        return None
    return {number: found for number, line in enumerate(text.split("\n"), 1) if (found := line.strip(BLANK))}


def simply_read(line: str) -> tuple[str, str, str] | None:
    """The ticket of a plain object of three texts."""
    try:
        value: Any = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    found = tuple(value.get(name) for name in ("id", "subject", "body"))
    texts = tuple(text.strip() for text in found if isinstance(text, str) and is_plain(text))
    return (texts[0], texts[1], texts[2]) if len(texts) == 3 and texts[0] and (texts[1] or texts[2]) else None


TARGET = Target(
    judge,
    seeds=(
        LINE,
        LINE * 2 + b"{\n[]\nnull\n\n",
        LINE + b'{"id": 9007199254740993, "subject": null, "body": 1e999, "tags": ["a", "VIP"]}\n',
        b'{"ticket": {"id": "7"}, "fields": [{"text": "s"}, {"id": "7", "value": "b"}]}\n',
        b"[" + LINE.strip() + b"]\n",
        LINE.replace(b", ", b",\n"),
        LINE + b"[" * 500 + b"\n",
        *(json.dumps({"id": "1", "subject": "s", "body": text.written}).encode()
          for text in TEXTS if len(text.written) < 100),
    ),
    words=('{"id": ', '"subject": ', '"body": ', '"b"', "null", "true", "1e9", "\\ud800", "\\u0000", "{", "}", "[", "]",
           '"ticket": ', '"fields": ', '"value": ', '"tags": ', ",", "\n"),
)  # fmt: skip
