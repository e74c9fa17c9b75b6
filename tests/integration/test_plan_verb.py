"""`plan` as a person calls it: what it rests on, what it says, and the object that it prints."""

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from jobs.store import curves, samples
from jobs.store.database import Database
from jobs.store.samples import LoadSample
from scheduler.curve import Curve
from scheduler.simulation.engine.profile import EngineProfile
from scheduler.simulation.fitted import played
from tests.support.in_process import directory
from tickets_batch.cli.database import opened
from tickets_batch.cli.run import run
from tickets_batch.settings import load

SETTINGS = """
timezone = "Europe/Berlin"
deadline = "07:00"
home = "home"
[[pool]]
name = "gpu"
base_url = "http://127.0.0.1:9/v1"
model = "test-model"
cost_per_hour = 3.6
capacity = { slots = 20, tokens = 60000 }
protected = { interactive = { slots = 8, tokens = 24000 }, batch = { slots = 2, tokens = 6000 } }
signal = [{ type = "ledger" }]
[[pool]]
name = "deep"
base_url = "http://127.0.0.1:9/v1"
model = "large-model"
capacity = { slots = 64, tokens = 400000 }
protected = { batch = { slots = 64, tokens = 400000 } }
"""
MEASURED = played(EngineProfile(slots=20), [1, 2, 4, 8, 16, 20], 500, 40)
NIGHT = ("--start", "22:00", "--deadline", "07:00")
COLUMNS = 80


class Here:
    """The command in a directory of its own, called in this process, and its database."""

    def __init__(self, capsys: pytest.CaptureFixture[str], db: Database) -> None:
        self._capsys = capsys
        self.db = db

    def __call__(self, *arguments: str, code: int = 0) -> str:
        """What `plan` prints on stdout."""
        got = run(["plan", *arguments])
        out, self.err = self._capsys.readouterr()
        assert got == code, self.err
        return out

    def json(self, *arguments: str) -> Any:
        return json.loads(self(*arguments, "--json"))

    def store(self, curve: Curve, model: str = "test-model") -> None:
        curves.save(self.db, "gpu", model, curve.as_json())

    def chat(self, slots: int) -> None:
        """So much chat at every hour of yesterday."""
        now = datetime.now(UTC)
        rows = [sample(now - timedelta(minutes=10 * place), slots) for place in range(1, 6 * 24)]
        samples.record(self.db, rows)


def sample(at: datetime, slots: int) -> LoadSample:
    names: Mapping[str, Any] = {
        **{f"{who}_{axis}": 0 for who in ("limit", "batch", "interactive") for axis in ("slots", "tokens")},
        **{f"interactive_{what}": 0 for what in ("waiting", "arrivals", "refused")},
    }
    values = dict(names) | {"interactive_slots": slots, "interactive_tokens": slots * 1000}
    return LoadSample(
        pool="gpu", at=at, revoked=0, ttft_seconds=None, reading_age_seconds=0.0, reason="headroom", **values
    )


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Here]:
    with directory(tmp_path, monkeypatch, SETTINGS), opened(load()) as db:
        yield Here(capsys, db)


def test_where_nothing_was_measured_it_says_so(here: Here) -> None:
    shown = " ".join(here("--pool", "gpu").split())
    assert "numbers default: nothing was measured yet; a 7B model on one middle GPU stands in" in shown
    assert "plan --measure gpu puts your own numbers here" in shown
    assert "(measured" not in shown


def test_where_something_was_it_says_when(here: Here) -> None:
    here.store(MEASURED)
    shown = " ".join(here("--pool", "gpu").split())
    assert "Europe/Berlin, with tickets of 500 tokens in and 40 out" in shown
    assert "per hour at the full limit (measured: 12 in flight, no chat)" in shown
    assert "(default" not in shown


def test_the_newest_measurement_holds(here: Here) -> None:
    here.store(played(EngineProfile(slots=20).at_speed(0.1), [1, 4, 20], 500, 40))
    here.store(MEASURED)
    found = here.json("--pool", "gpu")["pools"][0]
    assert found["tickets_per_hour_at_full"]["value"] == pytest.approx(3600 * MEASURED.tickets_per_second(12))


def test_a_measurement_of_another_model_does_not(here: Here) -> None:
    here.store(MEASURED, model="an-older-model")
    found = here.json("--pool", "gpu")["pools"][0]
    assert found["basis"]["origin"] == "default"
    assert found["basis"]["detail"].startswith("an-older-model was measured here, not test-model")
    assert found["curve"] is None


def test_one_that_cannot_be_read_is_no_error(here: Here) -> None:
    curves.save(here.db, "gpu", "test-model", {"steps": "none"})
    assert "cannot be read: measure the pool again" in here.json("--pool", "gpu")["pools"][0]["basis"]["detail"]


def test_given_numbers_go_before_measured_ones(here: Here) -> None:
    here.store(MEASURED)
    found = here.json("--pool", "gpu", "--ticket-seconds", "40")["pools"][0]
    assert found["basis"] == {
        "origin": "given",
        "detail": "each ticket takes 40 s, however many are in flight",
    }
    assert found["tickets_per_hour_at_full"] == {
        "value": pytest.approx(12 * 90),
        "origin": "given",
        "detail": "12 in flight, no chat",
    }
    assert found["peak_chat_requests"]["origin"] == "configured"
    assert found["advice"]["way"] == "hours"


def test_a_night_at_best_and_at_the_floor(here: Here) -> None:
    here.store(MEASURED)
    night = here.json("--pool", "gpu", "--tickets", "10000", *NIGHT)["night"]
    at_best = 10_000 / MEASURED.tickets_per_second(12)
    at_floor = 10_000 / (MEASURED.tickets_per_second(20) * 2 / 20)
    assert night["best"]["seconds"] == pytest.approx(at_best, abs=1)
    assert night["floor"]["seconds"] == pytest.approx(at_floor, abs=1)
    assert night["usual"] is None
    start_at, deadline_at = (datetime.fromisoformat(night[name]) for name in ("start_at", "deadline_at"))
    done_at, latest_at = (datetime.fromisoformat(night["best"][name]) for name in ("done_at", "latest_start_at"))
    assert (done_at - start_at).total_seconds() == pytest.approx(at_best, abs=2)
    assert (deadline_at - latest_at).total_seconds() == pytest.approx(at_best, abs=2)
    assert night["best"]["is_in_time"] is True


def test_a_night_with_last_weeks_chat_lies_between(here: Here) -> None:
    here.store(MEASURED)
    here.chat(12)
    night = here.json("--pool", "gpu", "--tickets", "10000", *NIGHT)["night"]
    assert night["best"]["seconds"] < night["usual"]["seconds"] < night["floor"]["seconds"]
    assert "chat as last week" in here("--pool", "gpu", "--tickets", "10000", *NIGHT)


def test_what_is_late_is_called_late(here: Here) -> None:
    here.store(MEASURED)
    night = here.json("--pool", "gpu", "--tickets", "3000000", *NIGHT)["night"]
    assert night["best"]["is_in_time"] is False
    assert " late " in here("--pool", "gpu", "--tickets", "600000", *NIGHT)


def test_without_a_deadline_there_is_no_latest_start(here: Here) -> None:
    night = here.json("--pool", "gpu", "--tickets", "100", "--deadline", "none")["night"]
    assert night["deadline_at"] is None
    assert night["best"]["is_in_time"] is None
    assert night["best"]["latest_start_at"] is None


def test_a_pool_of_batchs_own_has_no_chat(here: Here) -> None:
    planned = here.json("--pool", "deep", "--tickets", "1000", *NIGHT)
    assert planned["pools"][0]["is_dedicated"] is True
    assert planned["pools"][0]["peak_chat_requests"] is None
    assert planned["night"]["floor"] is None
    assert "chat" not in here("--pool", "deep").replace("plan --measure", "")


def test_a_blind_pool_is_planned_at_its_floor_and_says_why(here: Here) -> None:
    """Without a signal batch never leaves its floor: not even without chat is it faster than the floor's slots."""
    here.store(MEASURED)
    seen = here.json("--pool", "gpu", "--tickets", "40000", *NIGHT)
    Path("tickets-batch.toml").write_text(SETTINGS.replace('signal = [{ type = "ledger" }]', ""))
    planned = here.json("--pool", "gpu", "--tickets", "40000", *NIGHT)
    (pool,), night = planned["pools"], planned["night"]
    assert (seen["pools"][0]["is_blind"], pool["is_blind"]) == (False, True)
    assert pool["tickets_per_hour_at_full"]["value"] == pytest.approx(3600 * MEASURED.tickets_per_second(2))
    assert pool["tickets_per_hour_at_floor"] == seen["pools"][0]["tickets_per_hour_at_floor"]
    assert pool["ticket_seconds"]["detail"] == "with 2 in flight"
    assert pool["peak_chat_requests"] == seen["pools"][0]["peak_chat_requests"]
    assert night["best"]["seconds"] == pytest.approx(40000 / MEASURED.tickets_per_second(2), rel=0.001)
    assert night["best"]["latest_start_at"] < seen["night"]["best"]["latest_start_at"]
    assert "batch stays at its floor on gpu for want of a [[pool.signal]]" in night["detail"]
    shown = " ".join(here("--pool", "gpu").split())
    assert "per hour at the floor without chat (measured: 2 in flight, no chat)" in shown
    assert "the full limit (" not in shown
    assert "blind no [[pool.signal]] tells of the chat here, so that batch stays at its floor all night" in shown
    assert "share by slots: once a [[pool.signal]] tells of the chat: a ticket takes" in shown


def test_a_blind_pool_beside_one_of_batchs_own_adds_its_floor(here: Here) -> None:
    """And one that was seen before, whose chat is stored, is no faster for that."""
    here.store(MEASURED)
    here.chat(0)
    Path("tickets-batch.toml").write_text(SETTINGS.replace('signal = [{ type = "ledger" }]', ""))
    planned = here.json("--pool", "gpu", "--tickets", "1000", *NIGHT)
    assert planned["night"]["usual"]["seconds"] == planned["night"]["best"]["seconds"]
    both = here("--tickets", "1000", *NIGHT)
    assert all(len(line) <= COLUMNS for line in both.splitlines())
    assert "stays at its floor on gpu" in " ".join(both.split())


def test_a_day_of_all_is_wrong_usage(here: Here) -> None:
    here("--measure", "gpu", "--all", "--date", "today", code=2)
    assert "--all takes every row, whatever its date: leave --date or --all out." in here.err


@pytest.mark.parametrize("option", ["--start", "--deadline"])
def test_a_time_of_day_that_is_none_is_wrong_usage(here: Here, option: str) -> None:
    here("--tickets", "9", option, "25:00", code=2)
    assert here.err == 'tickets-batch: "25:00" is not a time of day: write HH:MM, for example 07:00\n'


def test_the_keys_are_stable(here: Here) -> None:
    here.store(MEASURED)
    planned = here.json("--tickets", "1000", *NIGHT)
    assert list(planned) == ["at", "pools", "night"]
    for pool in planned["pools"]:
        assert list(pool) == [
            *("pool", "model", "is_dedicated", "is_blind", "ttft_target_seconds", "basis"),
            *("ticket_seconds", "tickets_per_hour_at_floor", "tickets_per_hour_at_full"),
            *("peak_chat_requests", "people_chatting", "knee", "cost_per_ticket", "advice", "curve"),
        ]
    assert list(planned["night"]) == ["tickets", "start_at", "deadline_at", "best", "usual", "floor", "detail"]
    assert list(planned["night"]["best"]) == ["seconds", "done_at", "is_in_time", "latest_start_at"]
    assert Curve.from_json(planned["pools"][0]["curve"]) == MEASURED


def test_cost_is_shown_by_how_many_are_in_flight(here: Here) -> None:
    here.store(MEASURED)
    costs = here.json("--pool", "gpu")["pools"][0]["cost_per_ticket"]
    assert [cost["in_flight"] for cost in costs] == [1, 2, 4, 8, 16, 20]
    assert costs[0]["cost"] == pytest.approx(3.6 / 3600 / MEASURED.steps[0].tickets_per_second)
    assert costs[-1]["cost"] < costs[0]["cost"] / 5
    assert here.json("--pool", "deep")["pools"][0]["cost_per_ticket"] == []


def test_it_is_readable_at_80_columns(here: Here) -> None:
    here.chat(12)
    for arguments in ((), ("--tickets", "4000000", *NIGHT), ("--ticket-seconds", "90", "--tickets", "500")):
        shown = here(*arguments).splitlines()
        assert max(map(len, shown)) <= COLUMNS
        assert len(shown) > 10


def test_an_unknown_pool_is_named_in_one_line(here: Here) -> None:
    for arguments in (("--pool", "cpu"), ("--measure", "cpu")):
        here(*arguments, code=2)
        assert here.err == "tickets-batch: there is no pool cpu; the settings have gpu, deep\n"


def test_measuring_needs_tickets_and_labels(here: Here) -> None:
    here("--measure", "gpu", code=2)
    assert "no labels are configured" in here.err
    Path("empty.csv").write_text("id,subject,body\n", encoding="utf-8")
    here("--measure", "gpu", "--labels", "a,b", "--input", "empty.csv", "--all", code=1)
    assert "has no ticket at all" in here.err
    assert len(here.err.splitlines()) == 1
