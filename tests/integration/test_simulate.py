"""`simulate`: a night of the configured pool, or one that was, in numbers that add up; and one line for each fault."""

import csv
import json
import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from jobs.store import curves, samples, schema
from jobs.store.database import Database
from scheduler.hours import SharedHours
from scheduler.simulation.engine.profile import EngineProfile
from scheduler.simulation.fitted import played
from scheduler.simulation.night import Night, Row, play
from scheduler.simulation.shapes import alternating
from scheduler.simulation.tickets import SHORT
from tests.simulation.sites import MIDDLE
from tests.support.in_process import directory
from tests.support.samples import sample_of
from tests.support.store import START, ManualClock, claim, submit, succeed
from tickets_batch.cli.run import run

pytestmark = pytest.mark.long

SETTINGS = """
timezone = "Europe/Berlin"
home = "home"
deadline = "07:00"
[[pool]]
name = "gpu"
base_url = "http://127.0.0.1:9/v1"
model = "test-model"
capacity = { slots = 20, tokens = 120000 }
protected = { interactive = { slots = 8, tokens = 48000 }, batch = { slots = 2, tokens = 12000 } }
signal = [{ type = "ledger" }]
[[pool]]
name = "deep"
base_url = "http://127.0.0.1:9/v1"
model = "large-model"
capacity = { slots = 8, tokens = 40000 }
protected = { batch = { slots = 8, tokens = 40000 } }
"""


class Here:
    """The command in a directory of its own, called in this process."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self.err = ""

    def __call__(self, *arguments: str, code: int = 0) -> str:
        got = run(["simulate", *arguments])
        out, self.err = self._capsys.readouterr()
        assert got == code, self.err
        return out

    def json(self, *arguments: str) -> Any:
        return json.loads(self(*arguments, "--json"))

    def fault(self, *arguments: str, code: int) -> str:
        """The one line that a fault is told in."""
        assert self(*arguments, code=code) == ""
        (line,) = self.err.splitlines()
        return line


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Here]:
    with directory(tmp_path, monkeypatch, SETTINGS):
        yield Here(capsys)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def db(here: Here, clock: ManualClock) -> Iterator[Database]:
    """The database of the directory."""
    Path("home").mkdir()
    url = f"sqlite:///{Path('home/tickets-batch.db').absolute()}"
    schema.upgrade(url)
    opened = Database.open(url, clock)
    yield opened
    opened.dispose()


class TestANight:
    def test_in_numbers(self, here: Here) -> None:
        night = here.json("--tickets", "500", "--chat", "alternating", "--start", "22:00")
        assert list(night) == [
            *("pool", "engine", "starts_at", "deadline_at", "ended_at", "finished_at", "tickets", "rate_per_second"),
            *("chat", "floor_seconds", "rule_seconds", "yields", "withdrawn", "tokens", "pace"),
        ]
        starts, ends = (datetime.fromisoformat(night[key]) for key in ("starts_at", "deadline_at"))
        assert starts.astimezone(ZoneInfo("Europe/Berlin")).strftime("%H:%M") == "22:00"
        assert ends - starts == timedelta(hours=9)
        assert night["finished_at"] == night["ended_at"]
        assert night["pool"] == "gpu"
        assert night["engine"]["is_measured"] is False
        assert "plan --measure gpu" in night["engine"]["origin"]
        tickets = night["tickets"]
        assert (tickets["total"], tickets["done"], tickets["left"]) == (500, 500, 0)
        assert (tickets["prompt_tokens"], tickets["output_tokens"]) == (500, 40)
        assert tickets["origin"].startswith("assumed")
        waited = night["chat"]["ttft_seconds"]
        assert 0 < waited["p50"] <= waited["p95"] <= waited["p99"] < 0.8
        seconds = (datetime.fromisoformat(night["ended_at"]) - starts).total_seconds()
        assert sum(night["rule_seconds"].values()) == pytest.approx(seconds, abs=1.5)
        assert night["rate_per_second"] == pytest.approx(500 / seconds, rel=0.02)

    def test_in_words(self, here: Here) -> None:
        lines = here("--tickets", "400", "--chat", "none", "--start", "22:00", "--ticket-tokens", "300,20").splitlines()
        said = {line[:10].strip(): line[11:] for line in lines if line[:1].strip()}
        assert said["tickets"] == "400 of 300 tokens in and 20 out on average (given)"
        assert "nobody chatted" in said["chat"]
        assert "before the deadline" in said["done"]
        assert said["floor"].startswith("0 s at the floor (0% of the time); the rule that bound: maximum 100%")
        assert said["withdrawn"] == "0 requests, 0 of them done again later; 0 tokens wasted (0.0%)"

    def test_that_is_too_long_ends_at_the_deadline_and_says_so_early(self, here: Here) -> None:
        night = here.json("--tickets", "9000", "--chat", "none", "--start", "22:00", "--deadline", "22:10")
        assert night["finished_at"] is None
        assert night["tickets"]["done"] + night["tickets"]["left"] == 9000
        assert night["pace"][-1]["pace"] == "will_miss"
        assert here("--tickets", "9000", "--chat", "none", "--start", "22:00", "--deadline", "22:10").count("not:") == 1

    def test_without_a_deadline_has_no_pace(self, here: Here) -> None:
        night = here.json("--tickets", "300", "--chat", "none", "--deadline", "none")
        assert night["deadline_at"] is None
        assert night["pace"] == []
        assert night["finished_at"] is not None

    def test_in_a_pool_of_batchs_own(self, here: Here) -> None:
        said = here("--tickets", "300", "--chat", "none", "--pool", "deep")
        assert "no floor: the pool is batch's own" in said

    def test_the_chat_comes_from_a_file(self, here: Here) -> None:
        rows = [f"2026-11-30 22:00:{second:02}.0000000,400,60" for second in range(60)]
        Path("chat.csv").write_text("\n".join(["TIMESTAMP,ContextTokens,GeneratedTokens", *rows]))
        night = here.json("--tickets", "1200", "--chat", "chat.csv", "--start", "22:00")
        seconds = sum(night["rule_seconds"].values())
        assert seconds > 100  # longer than the file: it comes again
        assert night["chat"]["requests"] == pytest.approx(seconds, abs=3)
        assert "which comes again every 59 s" in night["chat"]["origin"]

    @pytest.mark.parametrize("name", ["night.csv", "night.jsonl"])
    def test_its_timeline_adds_up(self, here: Here, name: str) -> None:
        night = here.json("--tickets", "600", "--chat", "burst", "--start", "22:00", "-o", name)
        with Path(name).open(newline="") as file:
            rows: list[dict[str, Any]] = (
                list(csv.DictReader(file)) if name.endswith(".csv") else [json.loads(line) for line in file]
            )
        assert here.err.splitlines()[1:] == [f"{len(rows)} rows in {name}"]
        assert sum(int(row["tickets"]) for row in rows) == 600
        assert sum(int(row["withdrawn"]) for row in rows) == night["withdrawn"]
        assert int(rows[-1]["tickets_left"]) == 0
        assert [row["at"] for row in rows] == sorted(row["at"] for row in rows)
        assert all(0 <= int(row["batch_slots"]) <= 20 for row in rows)


class TestASweep:
    ASKED = ("--tickets", "600", "--chat", "alternating", "--start", "22:00")

    def test_plays_the_same_night_for_each_value(self, here: Here) -> None:
        found = here.json(*self.ASKED, "--sweep", "protected.interactive.slots=2,8,16")
        assert found["key"] == "protected.interactive.slots"
        nights = found["data"]
        assert [night["value"] for night in nights] == ["2", "8", "16"]
        rates = [night["rate_per_second"] for night in nights]
        assert rates[0] >= rates[1] > rates[2]  # the more is the chat's own, the less batch may have
        assert nights[1]["chat"] == here.json(*self.ASKED)["chat"]

    def test_prints_a_table(self, here: Here) -> None:
        head, *lines = here(*self.ASKED, "--sweep", "shared_hours=always,03:00-04:00").splitlines()
        assert head.split()[:4] == ["shared_hours", "done", "at", "left"]
        assert [line.split()[0] for line in lines] == ["always", "03:00-04:00"]
        assert len({len(line) for line in (head, *lines)}) == 1


def store_a_night(db: Database, clock: ManualClock) -> tuple[str, list[Row]]:
    """A batch of which the samples tell what a simulated night had; its chat."""
    chat = alternating(MIDDLE, 1, 900.0)
    hours = SharedHours.of(None, ZoneInfo("UTC"))
    rows = list(play(Night(MIDDLE, hours, [SHORT] * 100_000, chat, START, START + timedelta(seconds=900))).rows)
    batch_id = submit(db, 40, deadline_at=START + timedelta(hours=9)).batch_id
    held = claim(db, batch_id)
    stored = [sample_of(row) for row in rows]
    samples.record(db, stored)
    clock.advance(905.0)
    succeed(db, held)
    return batch_id, rows


class TestAReplay:
    def test_has_the_start_the_chat_and_the_tickets_of_that_night(
        self, here: Here, db: Database, clock: ManualClock
    ) -> None:
        batch_id, rows = store_a_night(db, clock)
        night = here.json("--replay", "latest")
        assert (night["starts_at"], night["deadline_at"]) == ("2026-11-30T22:00:00Z", "2026-12-01T07:00:00Z")
        tickets = night["tickets"]
        assert (tickets["total"], tickets["prompt_tokens"], tickets["output_tokens"]) == (40, 500, 10)
        assert tickets["origin"] == f"as in {batch_id}"
        # With as many tickets as that night had time for, its chat is there as it was.
        night = here.json("--replay", batch_id[:-2], "--tickets", "100000", "--deadline", "23:15")
        came = sum(row.arrivals + row.refused for row in rows)
        assert night["chat"]["requests"] == pytest.approx(came, rel=0.02)
        assert night["chat"]["origin"].startswith(f"as stored of {batch_id}")

    def test_under_another_setting(self, here: Here, db: Database, clock: ManualClock) -> None:
        store_a_night(db, clock)
        found = here.json("--replay", "latest", "--tickets", "500", "--sweep", "protected.interactive.slots=8,16")
        fast, slow = (night["rate_per_second"] for night in found["data"])
        assert fast > slow

    def test_needs_samples(self, here: Here, db: Database) -> None:
        batch_id = submit(db, 3).batch_id
        line = here.fault("--replay", "latest", code=1)
        assert f"nothing is stored of the chat in pool gpu during {batch_id}" in line

    def test_needs_a_batch(self, here: Here, db: Database) -> None:
        assert "batch" in here.fault("--replay", "batch_1", code=1)


class TestTheEngine:
    def test_is_as_fast_as_it_was_measured(self, here: Here, db: Database) -> None:
        slow = EngineProfile().at_speed(0.5)
        curves.save(db, "gpu", "test-model", played(slow, [1, 2, 4, 8, 16, 20], 700, 30).as_json())
        night = here.json("--tickets", "300", "--chat", "none", "--start", "22:00")
        assert night["engine"]["is_measured"] is True
        assert night["engine"]["step_base_seconds"] == pytest.approx(slow.step_base_seconds, rel=0.1)
        assert (night["tickets"]["prompt_tokens"], night["tickets"]["output_tokens"]) == (700, 30)
        assert "fitted" in night["engine"]["origin"]

    def test_of_another_model_does_not_count(self, here: Here, db: Database) -> None:
        curves.save(db, "gpu", "older-model", played(EngineProfile(), [1, 8], 700, 30).as_json())
        night = here.json("--tickets", "100", "--chat", "none")
        assert night["engine"]["is_measured"] is False
        assert "older-model was measured there, not test-model" in night["engine"]["origin"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--tickets", "9"], "Say who chats"),
        (["--tickets", "9", "--chat", "none", "--replay", "latest"], "Say who chats"),
        (["--chat", "none"], "Say how many tickets"),
        (["--chat", "rando", "--tickets", "9"], "no such shape; shapes are alternating, burst"),
        (["--chat", "none", "--tickets", "9", "--pool", "gpx"], "there is no pool gpx; the settings have gpu, deep"),
        (["--replay", "latest", "--start", "22:00"], "leave --start out"),
        (["--chat", "none", "--tickets", "9", "--start", "25:00"], '"25:00" is not a time of day'),
        (["--chat", "none", "--tickets", "9", "--deadline", "noon"], '"noon" is not a time of day'),
        (["--chat", "none", "--tickets", "9", "--ticket-tokens", "500"], "write for example 500,40"),
        (["--chat", "none", "--tickets", "9", "--sweep", "protectd.batch.slots=1"], 'did you mean "protected.batch'),
        (["--chat", "none", "--tickets", "9", "--sweep", "ttft_target_seconds"], "write a key and its values"),
        (["--chat", "none", "--tickets", "9", "--sweep", "protected.batch.slots=1,x"], "slots=x: input should be"),
        (["--chat", "none", "--tickets", "9", "--sweep", "protected.batch.slots=19"], "slots add up to 27"),
        (["--chat", "none", "--tickets", "9", "--sweep", "shared_hours=late"], "no range of hours"),
        (["--chat", "none", "--tickets", "9", "--sweep", "capacity.slots=20", "-o", "x.csv"], "leave --sweep or -o"),
        (["--replay", "latest"], "no batch is stored here yet"),
    ],
)
def test_a_fault_is_told_in_one_line(here: Here, arguments: list[str], words: str) -> None:
    assert words in here.fault(*arguments, code=1 if "stored" in words else 2)


def test_a_pool_without_a_signal_stays_at_its_floor_as_in_a_real_night(here: Here) -> None:
    asked = ("--tickets", "400", "--chat", "none", "--start", "22:00")
    seen = here.json(*asked)
    Path("tickets-batch.toml").write_text(
        SETTINGS.replace('signal = [{ type = "ledger" }]', "") + "[scheduler]\nholdout = 0.5\n"
    )
    shown = here(*asked, "-o", "night.jsonl")
    assert here.err.startswith("pool gpu has no signal: batch is blind to the chat there, and stays at its floor")
    assert "at the floor (100% of the time); the rule that bound: blind 100%" in shown
    rows = [json.loads(line) for line in Path("night.jsonl").read_text().splitlines()]
    assert {(row["reason"], row["limit_slots"], row["is_at_floor"]) for row in rows} == {("blind", 2, True)}
    blind = here.json(*asked)
    assert list(blind["rule_seconds"]) == ["blind"]
    assert blind["floor_seconds"] == blind["rule_seconds"]["blind"]
    assert blind["rate_per_second"] < seen["rate_per_second"] / 2


def test_a_value_by_which_a_blind_pool_becomes_batchs_own_is_played_as_such(here: Here) -> None:
    blind = SETTINGS.replace('signal = [{ type = "ledger" }]', "").replace(
        "interactive = { slots = 8, tokens = 48000 }, batch = { slots = 2, tokens = 12000 }",
        "batch = { slots = 2, tokens = 120000 }",
    )
    Path("tickets-batch.toml").write_text(blind)
    swept = here.json("--tickets", "400", "--chat", "none", "--sweep", "protected.batch.slots=2,20")
    assert [list(one["rule_seconds"]) for one in swept["data"]] == [["blind"], ["dedicated"]]


def test_a_pool_of_batchs_own_needs_no_signal(here: Here) -> None:
    here("--tickets", "9", "--chat", "none", "--pool", "deep")
    assert here.err == "playing 1 night of 9 tickets in virtual time ...\n"


def test_a_file_that_is_no_trace_is_told_in_one_line(here: Here) -> None:
    Path("chat.csv").write_text("when,what\n1,2\n")
    assert "has no column TIMESTAMP" in here.fault("--tickets", "9", "--chat", "chat.csv", code=1)


def test_held_out_minutes_are_played_as_they_would_be(here: Here) -> None:
    asked = ("--tickets", "2000", "--chat", "none", "--start", "22:00")
    for holdout, least in ((0, 0), (0.5, 60)):
        Path("tickets-batch.toml").write_text(f"{SETTINGS}\n[scheduler]\nholdout = {holdout}\n")
        night = here.json(*asked)
        held_out = night["rule_seconds"].get("holdout", 0)
        assert (held_out >= least, held_out > 0) == (True, holdout > 0)
        assert night["floor_seconds"] >= held_out


def test_several_nights_are_announced_in_one_line_too(here: Here) -> None:
    here("--tickets", "9", "--chat", "none", "--sweep", "ttft_target_seconds=0.5,1")
    assert here.err == "playing 2 nights of 9 tickets in virtual time ...\n"


def test_on_a_terminal_the_night_comes_along(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    for more in ((), ("--sweep", "ttft_target_seconds=0.5,1")):
        here("--tickets", "500", "--chat", "none", *more)
        assert "playing" in here.err
        assert "virtual time" not in here.err
        assert re.search(r"\b[1-9]\d?0?%", here.err), "it moves"
