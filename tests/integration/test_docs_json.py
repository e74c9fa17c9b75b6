"""The keys of `--json` are those of the page for scripts."""

import csv
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from jobs.store.database import Database
from tests.docs import json_keys
from tests.docs.named import rows, section, spans
from tests.support.in_process import Here, directory
from tests.support.store import ManualClock
from tickets_batch.cli import exit_codes
from tickets_batch.cli.simulate_text import write_timeline

PAGE = "docs/interface.md"
SETTINGS = """
home = "home"
classification.labels = { shipping = "delivery", billing = "invoices" }
[[pool]]
name = "gpu"
base_url = "http://127.0.0.1:9/v1"
model = "test-model"
capacity.slots = 4
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Here]:
    with directory(tmp_path, monkeypatch, SETTINGS):
        yield Here(capsys)


def explained(title: str) -> Iterator[str]:
    """Every key of the first table under a heading: its object is in the first column, empty for the whole."""
    table = section(PAGE, title).partition("\n| column |")[0]
    for inside, names, _ in rows(table):
        for before, name in product(spans(inside) or [""], spans(names)):
            yield f"{before}.{name}" if before else name


def assert_explained(title: str, printed: dict[str, Any]) -> None:
    named = list(explained(title))
    assert len(named) == len(set(named)), "a key stands twice"
    assert set(named) == set(json_keys.keys_in(printed))


def test_status() -> None:
    assert_explained("`status BATCH --json`", json_keys.status())


def test_submit_dry_run(here: Here) -> None:
    Path("tickets.csv").write_text("id,subject,body\n1,Parcel,Where is it?\n,Bill,Whose is it?\n", encoding="utf-8")
    printed = here.json("submit", "--dry-run", "--all", "--input", "tickets.csv")
    assert_explained("`submit --dry-run --json`", printed)


def test_doctor(here: Here) -> None:
    assert_explained("`doctor --json`", here.json("doctor", code=exit_codes.ERROR))


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_report(store: Database, store_clock: ManualClock) -> None:
    assert_explained("`report BATCH --json`", json_keys.report(store, store_clock))


def test_plan() -> None:
    assert_explained("`plan --json`", json_keys.plan())


def test_simulate() -> None:
    assert_explained("`simulate --json`", json_keys.simulate())


def test_the_timeline_of_a_simulated_night(tmp_path: Path) -> None:
    file = tmp_path / "night.csv"
    write_timeline(json_keys.simulated_night(), file)
    with file.open(encoding="utf-8", newline="") as read:
        columns = next(csv.reader(read))
    table = section(PAGE, "`simulate --json`").partition("\n| column |")[2]
    assert [name for row in rows(f"| column |{table}") for name in spans(row[0])] == columns
