"""A CSV file of any bytes: sound rows or one line, and where Python's own reader takes it, the rows that it reads."""

import csv
import io
from pathlib import Path

from jobs.intake.csv_rows import SEPARATORS
from jobs.intake.text import tidy
from jobs.ticket import Ticket
from tests.fuzz.claims import is_plain
from tests.fuzz.target import Target
from tests.fuzz.tickets import Rows, rows_of
from tests.hostile.texts import TEXTS

HEAD = ["id", "subject", "body"]
HEADER, LAST = b"id,subject,body\n", b"\n7777,s,b\n"


def judge(data: bytes, folder: Path) -> None:
    rows = rows_of(folder / "tickets.csv", data)
    lines = [row.line for row in rows or ()]
    assert lines == sorted(set(lines)), "two rows of one line"
    assert len(lines) <= len(data.splitlines()) + data.count(b"\r") + data.count(b"\n")
    rows_of(folder / "tickets.csv", data, urgent={"column": "subject", "values": ["s"]})
    if data.startswith(HEADER) and is_text(data):
        with_more = rows_of(folder / "tickets.csv", data + LAST)
        assert with_more is not None
        assert with_more[-1].custom_id == "7777", "what came before has swallowed the last row"
    expected = simply_read(data)
    if expected is not None and rows is not None:
        compare(rows, expected)


def is_text(data: bytes) -> bool:
    """Whether lines end where they seem to."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return False
    return all(letter >= " " or letter in "\t\n" for letter in text)


def simply_read(data: bytes) -> list[list[str]] | None:
    """The cells as Python's csv module reads them; None where the file is not a plain one."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    if not is_plain(text) or "\ufeff" in text or not text.startswith(",".join(HEAD)):
        return None
    try:
        head, *cells = csv.reader(io.StringIO(text), strict=True, skipinitialspace=True)
    except csv.Error:
        return None
    return [row for row in cells if any(row)] if head == HEAD else None


def compare(rows: Rows, expected: list[list[str]]) -> None:
    assert len(rows) == len(expected), (rows, expected)
    for row, cells in zip(rows, expected, strict=True):
        if len(cells) < 3 or any(cells[3:]):
            assert not isinstance(row, Ticket)
        elif isinstance(row, Ticket):
            assert [row.custom_id, row.subject, row.body] == [tidy(cell) for cell in cells[:3]]
        else:
            assert not cells[0].strip() or len(cells[0].strip()) > 500 or not (cells[1] + cells[2]).strip()


TARGET = Target(
    judge,
    seeds=(
        b"id,subject,body\n1,s,b\n",
        b'id,subject,body\n1,"s""s","b\nc"\n2,s,"open\n3,s,b\n',
        b"sep=;\nID;Subject;Body;Created_at\n1;s;b;2026-11-30\n",
        b"id\tsubject\tbody\r\n1\ts\tb\r\n",
        b"id|subject|body\r1|s|b\r",
        b"\xef\xbb\xbfid,subject,body,body\n1,s,,b\n",
        b"id,subject,body\n1,s,<p>Hello</p><br>\n",
        b"id,subject,body\n1,s,caf\xe9\xff\n",
        "id,subject,body\n1,s,b\n".encode("utf-16"),
        *(b'id,subject,body\n1,s,"%s"\n' % text.written.encode("utf-8", "surrogatepass").replace(b'"', b'""')
          for text in TEXTS if len(text.written) < 100),
    ),
    words=("id,subject,body\n", "1,s,b\n", '""', '"', "\r\n", "sep=;", "\ufeff", "<p>", "</p>", "&#9", *SEPARATORS),
)  # fmt: skip
