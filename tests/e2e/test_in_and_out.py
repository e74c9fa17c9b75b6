"""An export goes in, and labels come out where people need them: a table of theirs, and a word that it is done."""

import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engine.process import EngineProcess
from tests.support.hook import Hook
from tests.support.night import Night
from tests.support.wait import wait_until

pytestmark = pytest.mark.long

BODIES = ("My parcel is late.", "You charged me twice.", "The app does not start.")


@pytest.fixture
def receiver() -> Iterator[Hook]:
    with Hook.listening() as hook:
        yield hook


@pytest.fixture
def warehouse(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(tmp_path / "warehouse.db")
    yield connection
    connection.close()


def export(path: Path) -> None:
    """What Zendesk gives, with a ticket that was changed since."""
    tickets = [
        {
            "id": number,
            "subject": "",
            "description": body,
            "created_at": "2026-11-30T11:00:00Z",
            "updated_at": "2026-11-30T12:00:00Z",
        }
        for number, body in enumerate(BODIES, 1)
    ]
    old = {**tickets[0], "description": "Hello", "updated_at": "2026-11-30T11:00:00Z"}
    path.write_text(json.dumps({"tickets": [*tickets, old]}, indent=1), encoding="utf-8")


@pytest.mark.long
def test_from_an_export_to_a_table(
    night: Night, steady_engine: EngineProcess, warehouse: sqlite3.Connection, receiver: Hook
) -> None:
    alert = f'[alert]\nwebhook = {{ env = "HOOK" }}\n[sink]\nurl = "sqlite:///{night.folder}/warehouse.db"\n'
    sink = 'table = "labels"\ncolumns = { custom_id = "ticket", label = "label", finished_at = "at" }\n'
    night.environment["HOOK"] = receiver.url
    night.configure(steady_engine.base_url)
    with (night.folder / "tickets-batch.toml").open("a", encoding="utf-8") as settings:
        settings.write(alert + sink)
    export(night.folder / "export.json")
    submit = ("submit", "--all", "--input", "export.json", "--format", "zendesk", "--wait")

    warehouse.execute("CREATE TABLE labels (ticket INTEGER, label TEXT, at TEXT)")
    ended = night.run(*submit, code=1, timeout_seconds=120)
    assert "results could not be written now" in ended.talk[0]
    assert "has no unique key on ticket" in ended.talk[-1]
    assert "earlier versions of a ticket that comes again, left out: 1" in ended.err
    batch_id = ended.out.strip()

    warehouse.execute("CREATE UNIQUE INDEX labels_ticket ON labels (ticket)")
    expected = {
        int(custom_id): label for custom_id, label in night.expected(dict(zip("123", BODIES, strict=True))).items()
    }
    for again in (("results", batch_id, "--to-sink"), ("results", "latest", "--to-sink"), submit):
        ended = night.run(*again, code=0, timeout_seconds=120)
        assert f"{batch_id}: results of 3 tickets in labels in sqlite" in ended.err
        assert dict(warehouse.execute("SELECT ticket, label FROM labels")) == expected
    night.run("results", "latest", "--to-sink", "-o", "x.csv", code=2)

    wait_until(lambda: [alert["event"] for alert in receiver.got].count("ended") == 1, "the word that it has ended")
    told = next(alert for alert in receiver.got if alert["event"] == "ended")
    assert told["batch_id"] == batch_id
    assert told["state"] == "completed"
    assert told["request_counts"]["succeeded"] == 3


def test_without_a_table_the_verb_says_so(night: Night) -> None:
    night.configure("http://127.0.0.1:9/v1")
    night.tickets(BODIES)
    night.run("submit", "--all", code=1)
    ended = night.run("results", "latest", "--to-sink", code=2)
    assert ended.talk == [
        "tickets-batch: there is no table to write to: set [sink] url and table in tickets-batch.toml"
    ]
