"""Every strange text through every kind of source: the same ticket comes out, and no other is harmed."""

import csv
import gzip
import io
import json
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from jobs.intake.source import open_source
from jobs.prompt import CLOSE, OPEN, fenced
from jobs.ticket import Rejection, Ticket
from tests.hostile.texts import TEXTS, Text
from tests.support.intake import DAY, Read, read, read_file
from tickets_batch.settings import Columns
from tickets_batch.settings import Source as SourceSettings

Rows = list[tuple[str, str, str]]


def _csv(folder: Path, rows: Rows, *, name: str = "tickets.csv", separator: str = ",") -> Read:
    out = io.StringIO()
    csv.writer(out, delimiter=separator).writerows([("id", "subject", "body"), *rows])
    plain = out.getvalue().encode()
    return read_file(folder, gzip.compress(plain) if name.endswith(".gz") else plain, name, every_row=True)


def _tsv(folder: Path, rows: Rows) -> Read:
    return _csv(folder, rows, name="tickets.tsv.gz", separator="\t")


def _jsonl(folder: Path, rows: Rows) -> Read:
    lines = [json.dumps({"id": number, "subject": subject, "body": body}) for number, subject, body in rows]
    return read_file(folder, "\n".join(lines), "tickets.jsonl", every_row=True)


def _page(folder: Path, rows: Rows) -> Read:
    tickets = [{"id": number, "subject": subject, "description": body} for number, subject, body in rows]
    return read_file(folder, json.dumps({"tickets": tickets}), "tickets.json", every_row=True, format="zendesk")


def _sql(folder: Path, rows: Rows) -> Read:
    with sqlite3.connect(folder / "tickets.db") as connection:
        connection.execute("CREATE TABLE tickets (id TEXT, subject TEXT, body TEXT)")
        connection.executemany("INSERT INTO tickets VALUES (?, ?, ?)", rows)
    connection.close()
    settings = SourceSettings(
        url=f"sqlite:///{folder}/tickets.db", query="SELECT id, subject, body FROM tickets", columns=Columns()
    )
    return read(open_source(settings, DAY, every_row=True))


SOURCES: dict[str, Callable[[Path, Rows], Read]] = {
    "csv": _csv,
    "packed tsv": _tsv,
    "jsonl": _jsonl,
    "page of json": _page,
    "sql": _sql,
}
CASES = [
    pytest.param(source, text, id=f"{name}: {text.name}")
    for name, source in SOURCES.items()
    for text in TEXTS
    if not text.is_half or name in ("jsonl", "page of json")
]


@pytest.mark.parametrize(("source", "text"), CASES)
def test_a_strange_body_is_the_same_from_every_source(
    source: Callable[[Path, Rows], Read], text: Text, tmp_path: Path
) -> None:
    got = source(tmp_path, [("A", "before", "one"), ("B", "strange", text.written), ("C", "after", "two")])
    assert got.rejections == []
    assert got.bodies == {"A": "one", "B": text.read, "C": "two"}
    got.bodies["B"].encode()  # every database and every engine takes it


@pytest.mark.parametrize("text", [pytest.param(text, id=text.name) for text in TEXTS])
def test_a_strange_text_as_id_and_subject_stays_one_row(text: Text, tmp_path: Path) -> None:
    got = _jsonl(tmp_path, [(text.written, text.written, "body"), ("C", "after", "two")])
    rows: list[Ticket | Rejection] = [*got.tickets, *got.rejections]
    assert len(rows) == 2
    assert got.bodies["C"] == "two"
    for row in rows:
        assert len(row.custom_id or "") <= 500
        (row.custom_id or "").encode()


@pytest.mark.parametrize("text", [pytest.param(text, id=text.name) for text in TEXTS])
def test_a_strange_text_stays_between_its_fences(text: Text) -> None:
    sent = fenced(text.read, text.read)
    assert (sent.count(OPEN), sent.count(CLOSE)) == (1, 1)
    assert sent.startswith(OPEN)
    assert sent.endswith(CLOSE)
