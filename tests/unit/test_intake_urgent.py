"""The rule of a source that says which tickets go first."""

import json
import sqlite3
from pathlib import Path

import pytest

from jobs.intake.source import open_source
from tests.support.intake import DAY, Read, read, refused
from tickets_batch.settings import Source as SourceSettings
from tickets_batch.settings import Urgent

NOON = "2026-11-30 12:00:00"
URGENT = Urgent(column="Prio", values=("urgent", "HIGH"))


def read_with_rule(path: Path, content: str, urgent: Urgent = URGENT) -> Read:
    path.write_text(content)
    return read(open_source(SourceSettings(path=str(path), urgent=urgent), DAY))


def priorities(seen: Read) -> dict[str, int]:
    return {ticket.custom_id: ticket.priority for ticket in seen.tickets}


def test_the_values_of_a_csv_column_whatever_their_case_and_white_space(tmp_path: Path) -> None:
    cells = ["urgent", " Urgent ", "HIGH", "high", "highest", "low", "", "3"]
    rows = "".join(f"{number},{NOON},b,{cell}\n" for number, cell in enumerate(cells))
    seen = read_with_rule(tmp_path / "t.csv", f"id,created_at,body,Prio\n{rows}")
    first, last = 2, 0
    assert list(priorities(seen).values()) == [first, first, first, first, last, last, last, last]
    assert "urgent tickets, which go first: 4" in seen.notes


def test_words_that_a_priority_column_knows_mean_nothing_beside_the_rule(tmp_path: Path) -> None:
    rule = Urgent(column="Prio", values=("vip",))
    seen = read_with_rule(tmp_path / "t.csv", f"id,created_at,body,Prio\n1,{NOON},b,urgent\n2,{NOON},b,VIP\n", rule)
    assert priorities(seen) == {"1": 0, "2": 2}


def test_numbers_truth_values_and_lists_of_jsonl(tmp_path: Path) -> None:
    rule = Urgent(column="via.prio", values=("4", "true", "vip"))
    values: list[object] = [4, "4", 40, True, False, None, ["new", "VIP"], ["new"], [], {"a": 1}]
    rows = [
        {"id": number, "created_at": NOON, "body": "b", "via": {"prio": value}} for number, value in enumerate(values)
    ]
    seen = read_with_rule(tmp_path / "t.jsonl", "\n".join(map(json.dumps, rows)), rule)
    urgent = [number for number, priority in priorities(seen).items() if priority]
    assert urgent == ["0", "1", "3", "6"]


def test_nothing_is_no_value(tmp_path: Path) -> None:
    rule = Urgent(column="prio", values=("none",))
    rows = [{"id": 1, "created_at": NOON, "body": "b", "prio": None}, {"id": 2, "created_at": NOON, "body": "b"}]
    seen = read_with_rule(tmp_path / "t.jsonl", "\n".join(map(json.dumps, rows)), rule)
    assert priorities(seen) == {"1": 0, "2": 0}
    assert "urgent tickets, which go first: 0" in seen.notes


def test_a_column_of_a_query(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "t.db") as db:
        db.execute("CREATE TABLE t (id, created_at, body, Prio)")
        db.executemany("INSERT INTO t VALUES (?, ?, 'b', ?)", [(1, NOON, "high"), (2, NOON, None), (3, NOON, 5)])
    db.close()
    rule = Urgent(column="prio", values=("high", "5"))
    settings = SourceSettings(url=f"sqlite:///{tmp_path}/t.db", query="SELECT * FROM t", urgent=rule)
    assert priorities(read(open_source(settings, DAY))) == {"1": 2, "2": 0, "3": 2}


@pytest.mark.parametrize("name", ["t.csv", "t.jsonl"])
def test_the_column_must_be_there(tmp_path: Path, name: str) -> None:
    row = {"id": "1", "created_at": NOON, "body": "b", "Priority": "high"}
    content = f"{','.join(row)}\n{','.join(row.values())}\n" if name == "t.csv" else json.dumps(row)
    with refused('no column "Prio" for urgent.column (nearest: "Priority")', "set [source] urgent"):
        read_with_rule(tmp_path / name, content)


def test_without_a_rule_nothing_is_said_of_it(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(f"id,created_at,subject,body,Prio\n1,{NOON},,b,urgent\n")
    seen = read(open_source(SourceSettings(path=str(path)), DAY))
    assert priorities(seen) == {"1": 0}
    assert seen.notes == ()
