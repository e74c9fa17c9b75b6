"""Cells as a spreadsheet writes them, in any of its ways: they come back as they were."""

import csv
import gzip
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from jobs.intake.text import tidy
from jobs.ticket import Ticket
from tests.fuzz.claims import is_plain
from tests.fuzz.target import Target
from tests.fuzz.tickets import rows_of
from tests.hostile.texts import TEXTS

HEAD = ["id", "subject", "body"]
CELL_END = "\x1f"
ENCODINGS = ("utf-8", "utf-8-sig", "utf-16")


def judge(data: bytes, folder: Path) -> None:
    way, text = data[:1] or b"\0", data[1:].decode("utf-8", "replace")
    cells = [cell.strip(" ") for cell in text.split(CELL_END) if is_plain(cell) and not _is_control(cell)]
    table = [cells[start : start + 3] for start in range(0, len(cells) - 2, 3)]
    rows = rows_of(folder / "tickets.csv", written(table, way[0]))
    assert rows is not None, "a table that a spreadsheet wrote is refused"
    expected = [row for row in table if any(row)]
    assert len(rows) == len(expected), (rows, expected)
    for row, (custom_id, subject, body) in zip(rows, expected, strict=True):
        if isinstance(row, Ticket):
            assert (row.custom_id, row.subject, row.body) == (custom_id.strip(), tidy(subject), tidy(body))
        else:
            assert not custom_id.strip() or len(custom_id.strip()) > 500 or not (subject + body).strip()


def written(table: Sequence[Sequence[str]], way: int) -> bytes:
    """The file, in one of the ways to write it."""
    text = io.StringIO()
    quoting: Literal[0, 1] = csv.QUOTE_ALL if way & 1 else csv.QUOTE_MINIMAL
    writer = csv.writer(
        text, delimiter=",;\t|"[way >> 1 & 3], quoting=quoting, lineterminator="\r\n" if way & 8 else "\n"
    )
    writer.writerows([HEAD, *table])
    content = text.getvalue().encode(ENCODINGS[(way >> 4) % 3])
    return gzip.compress(content, 1) if way & 128 else content


def _is_control(cell: str) -> bool:
    """Whether enough such cells would make a file no text."""
    return any(letter < " " and letter not in "\t\n" for letter in cell)


TARGET = Target(
    judge,
    seeds=(
        *(bytes([way]) + b"1\x1fs\x1fb\x1f2\x1fs, s; s\ts\x1f" + b'"b"\nb' for way in range(0, 256, 9)),
        *(b"\0" + f"1{CELL_END}s{CELL_END}{text.written}".encode()
          for text in TEXTS if len(text.written) < 100 and not text.is_half),
    ),
    words=(CELL_END, '"', '""', ",", ";", "\t", "|", "\n", " ", "\u2028", "\x85", "sep=;"),
    most_bytes=512,
)  # fmt: skip
