"""A source without a subject, which nobody has asked for: its tickets are taken, and it is said once."""

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from jobs.intake.source import open_source
from tests.support.intake import DAY, Read, read, refused
from tickets_batch.settings import Columns
from tickets_batch.settings import Source as SourceSettings

ROWS = [{"id": "1", "Title": "Late", "body": "Where is it?"}, {"id": "2", "Title": "Twice", "body": "Charged twice."}]
SAID = (
    'no column "subject" for columns.subject (nearest: "Title"): the bodies alone are classified; '
    "if it has another name, set [source] columns"
)


def csv(folder: Path, rows: list[dict[str, str]]) -> SourceSettings:
    lines = [",".join(rows[0]), *(",".join(row.values()) for row in rows)]
    (folder / "t.csv").write_text("".join(f"{line}\n" for line in lines))
    return SourceSettings(path=str(folder / "t.csv"))


def jsonl(folder: Path, rows: list[dict[str, str]]) -> SourceSettings:
    (folder / "t.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return SourceSettings(path=str(folder / "t.jsonl"))


def query(folder: Path, rows: list[dict[str, str]]) -> SourceSettings:
    with sqlite3.connect(folder / "t.db") as connection:
        connection.execute(f"CREATE TABLE t ({', '.join(rows[0])})")
        connection.executemany(f"INSERT INTO t VALUES ({', '.join('?' * len(rows[0]))})", [[*r.values()] for r in rows])
    connection.close()
    return SourceSettings(url=f"sqlite:///{folder / 't.db'}", query="SELECT * FROM t")


Writer = Callable[[Path, list[dict[str, str]]], SourceSettings]
KINDS = pytest.mark.parametrize("kind", [csv, jsonl, query])


def taken(settings: SourceSettings, **columns: str) -> Read:
    return read(open_source(settings.model_copy(update={"columns": Columns(**columns)}), DAY, every_row=True))


@KINDS
def test_its_tickets_are_taken_and_it_is_said_once(tmp_path: Path, kind: Writer) -> None:
    seen = taken(kind(tmp_path, ROWS))
    assert seen.bodies == {"1": "Where is it?", "2": "Charged twice."}
    assert seen.notes == (SAID,)


@KINDS
def test_one_that_is_named_must_be_there(tmp_path: Path, kind: Writer) -> None:
    with refused('no column "subject" for columns.subject (nearest: "Title")'):
        taken(kind(tmp_path, ROWS), subject="subject")


@KINDS
def test_with_a_subject_nothing_is_said(tmp_path: Path, kind: Writer) -> None:
    seen = taken(kind(tmp_path, ROWS), subject="Title")
    assert [ticket.subject for ticket in seen.tickets] == ["Late", "Twice"]
    assert seen.notes == ()


def test_a_field_that_comes_late_is_one(tmp_path: Path) -> None:
    rows = [{"id": str(number), "body": "b"} for number in range(150)]
    assert taken(jsonl(tmp_path, [*rows, {"id": "x", "subject": "Late", "body": "b"}])).notes == ()
