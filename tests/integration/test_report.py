"""The report of a night: its figures are what SQL says, and the page says what the figures say."""

import json
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select

from jobs.export import write_results
from jobs.store import batches, events, results, samples
from jobs.store.database import Database
from jobs.store.events import EventKind
from jobs.tables import attempts, jobs, load_samples
from jobs.tables import results as results_table
from scheduler.limit import Rule
from tests.support.reported_night import GPU, LABELS, reported_night
from tests.support.samples import SAMPLE as USUAL_SAMPLE
from tests.support.store import START, ManualClock, claim, submit, succeed
from tickets_batch.cli.run import run
from tickets_batch.report.figures import Figures
from tickets_batch.report.page import page
from tickets_batch.report.plots import Plot, plots
from tickets_batch.report.words import price_in_words, receipt_in_words
from tickets_batch.settings import Settings

CHECKOUT = Path(__file__).resolve().parents[2]
SVG = "{http://www.w3.org/2000/svg}"
SETTINGS = Settings(timezone="Europe/Berlin", pool=(GPU,))
CURVES = {
    "ttft-gpu": ["ttft", "target"],
    "limit-gpu": ["batch", "limit", "chat"],
    "progress": ["done", "pace", "deadline"],
    "forecast": ["p90", "p50", "ended", "deadline"],
    "labels": [],
    "failures": [],
    "tokens": [],
}

SAMPLE = replace(USUAL_SAMPLE, at=START + timedelta(seconds=1))

on_sqlite = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)  # where SQL is not what is looked at


def figures_of(db: Database, batch_id: str, settings: Settings = SETTINGS) -> Figures:
    return Figures.of(db, batch_id, settings)


class TestFigures:
    def test_counts_are_those_of_sql(self, store: Database, store_clock: ManualClock) -> None:
        batch_id = reported_night(store, store_clock, tickets=400, hours=1.0)
        told = figures_of(store, batch_id).as_json()
        with store.read() as connection:
            counted = connection.execute(
                select(results_table.c.label, func.count())
                .join(jobs, jobs.c.id == results_table.c.job_id)
                .where(jobs.c.batch_id == batch_id, results_table.c.label.is_not(None))
                .group_by(results_table.c.label)
            )
            labels = {str(label): int(count) for label, count in counted}
            failed = connection.execute(
                select(jobs.c.error).where(jobs.c.batch_id == batch_id, jobs.c.state == "failed")
            ).scalars()
            failures = Counter(str(error).partition(":")[0] for error in failed)
            tokens = connection.execute(
                select(func.sum(attempts.c.prompt_tokens), func.sum(attempts.c.completion_tokens))
            ).one()
        assert told["labels"] == labels
        assert sum(labels.values()) == told["request_counts"]["succeeded"] > 300
        assert told["failures"] == failures
        assert set(failures) == {"invalid_output", "too_long"}
        assert (told["tokens"]["prompt"], told["tokens"]["completion"]) == tuple(tokens)
        assert told["progress"]["done"][-1] == told["request_counts"]["total"] == 400

    def test_the_pool_is_told_from_its_samples(self, store: Database, store_clock: ManualClock) -> None:
        batch_id = reported_night(store, store_clock, tickets=50, hours=1.0)
        seen = samples.between(store, "gpu", START, START + timedelta(hours=1))
        (pool,) = figures_of(store, batch_id).as_json()["pools"]
        assert pool["seen_seconds"] == 10 * len(seen) == 3240
        assert pool["floor_seconds"] == 10 * sum(sample.limit_slots <= 2 for sample in seen)
        assert pool["rule_seconds"][Rule.HOLDOUT] == 10 * sum(sample.reason == Rule.HOLDOUT for sample in seen)
        assert pool["arrivals"] == sum(sample.interactive_arrivals for sample in seen)
        assert pool["curves"]["ttft_seconds"][-1] == seen[-1].ttft_seconds
        assert pool["curves"]["limit_slots"] == tuple(sample.limit_slots for sample in seen)
        assert max(pool["curves"]["ttft_seconds"], key=lambda ttft: ttft or 0) == max(
            sample.ttft_seconds or 0 for sample in seen
        )

    def test_what_it_cost(self, store: Database, store_clock: ManualClock) -> None:
        batch_id = reported_night(store, store_clock, tickets=50, hours=2.0)
        cost = figures_of(store, batch_id).cost
        assert cost.hours == pytest.approx(1.8, abs=0.05)
        assert cost.pools == pytest.approx(2.5 * cost.hours)
        assert cost.batch_share is not None
        assert cost.pools is not None
        assert 0 < cost.batch_share < cost.pools

    def test_a_pool_that_is_no_longer_configured(self, store: Database, store_clock: ManualClock) -> None:
        batch_id = reported_night(store, store_clock, tickets=20, hours=0.5)
        told = figures_of(store, batch_id, Settings())
        (pool,) = told.as_json()["pools"]
        assert (pool["floor_seconds"], pool["ttft_target_seconds"], told.cost.pools) == (None, None, None)
        assert "limit-gpu" in page(told)

    def test_a_batch_that_has_not_begun(self, store: Database) -> None:
        batch_id = submit(store, 3).batch_id
        told = figures_of(store, batch_id)
        assert told.as_json()["progress"]["done"][-1] == 0
        assert "nothing was recorded" in receipt_in_words(told)[0]
        assert page(told)

    @pytest.mark.parametrize("recorded", [0, 1])
    def test_a_batch_of_seconds_says_why_there_are_no_curves(
        self, store: Database, store_clock: ManualClock, recorded: int
    ) -> None:
        batch_id = submit(store, 1).batch_id
        held = claim(store, batch_id)
        if recorded:
            samples.record(store, [SAMPLE])
        store_clock.advance(4)
        succeed(store, held)
        told = figures_of(store, batch_id)
        why = "because the scheduler writes a sample every 10 seconds, and the batch took 4 s."
        assert f"Of pool gpu there are no curves: {why}" in page(told)
        assert {plot.name for plot in plots(told)} == {"progress", "labels", "tokens"}
        if not recorded:
            assert receipt_in_words(told)[0].endswith(f"nothing was recorded of it, {why}")


def changes(db: Database, clock: ManualClock, since: datetime, count: int, *, reason: str, pool: str = "gpu") -> None:
    """So many changes of what batch has of a pool, ten seconds after each other; the clock is set back then."""
    now = clock.instant
    for place in range(count):
        clock.instant = since + timedelta(seconds=10 * place)
        came_from, to = ("open", "floor") if place % 2 == 0 else ("floor", "open")
        events.record(db, EventKind.LIMIT, pool=pool, **{"from": came_from, "to": to, "reason": reason})
    clock.instant = now


@on_sqlite
class TestPage:
    @pytest.fixture
    def told(self, store: Database, store_clock: ManualClock) -> Figures:
        return figures_of(store, reported_night(store, store_clock, tickets=400, hours=4.0))

    def test_every_plot_is_drawn(self, told: Figures) -> None:
        drawn = {plot.name: plot for plot in plots(told)}
        assert list(drawn) == list(CURVES)
        for name, curves in CURVES.items():
            for curve in curves:
                assert points(drawn[name], curve) >= 2, f"{curve} of {name}"
        assert points(drawn["ttft-gpu"], "ttft") > 200
        assert points(drawn["labels"]) >= len(LABELS)

    def test_a_gap_in_the_record_is_a_gap_in_the_curve(self, store: Database, store_clock: ManualClock) -> None:
        batch_id = reported_night(store, store_clock, tickets=20, hours=1.0)
        with store.begin() as connection:
            gone = load_samples.c.at.between(START + timedelta(minutes=10), START + timedelta(minutes=20))
            connection.execute(load_samples.delete().where(gone))
        told = figures_of(store, batch_id)
        assert told.pools[0].curves.limit_slots.count(None) > 50
        assert moves(next(plot for plot in plots(told) if plot.name == "limit-gpu"), "limit") == 2

    def test_it_needs_nothing_else(self, told: Figures) -> None:
        text = page(told)
        assert "<script" not in text
        assert not re.search(r"""(?:src|href)=["'](?!#|data:,)""", text)
        assert not re.search(r"url\((?!#)|@import", text)

    def test_no_two_elements_share_an_id(self, told: Figures) -> None:
        ids = Counter(re.findall(r'\bid="([^"]*)"', page(told)))
        assert [name for name, count in ids.items() if count > 1] == []

    def test_it_says_what_the_figures_say(self, told: Figures) -> None:
        text = unescape(page(told))
        counts = told.as_json()["request_counts"]
        for name in ("succeeded", "failed"):
            assert f'<th scope="row">{name}</th><td>{counts[name]:,}</td>' in text
        for sentence in (*receipt_in_words(told), *price_in_words(told)):
            assert sentence in text
        happened = '<th scope="row">2026-11-30 23:10:00 Europe/Berlin</th><td>pace on track -> at risk</td>'
        assert happened in text

    def test_what_happened_tells_when_batch_was_pulled_back_and_why(
        self, store: Database, store_clock: ManualClock
    ) -> None:
        batch_id = reported_night(store, store_clock, tickets=20, hours=1.0)
        changes(store, store_clock, START - timedelta(minutes=5), 1, reason="before the night")
        changes(store, store_clock, START + timedelta(minutes=20), 2, reason="headroom: chat holds 9 of 20 slots")
        changes(store, store_clock, START + timedelta(minutes=20), 1, pool="other", reason="of another pool")
        changes(store, store_clock, START + timedelta(hours=2), 1, reason="after the night")
        told = figures_of(store, batch_id)
        text = unescape(page(told))
        for instant, moved in (("23:20:00", "open -> floor"), ("23:20:10", "floor -> open")):
            said = f"pool gpu: {moved}, headroom: chat holds 9 of 20 slots"
            assert f'<th scope="row">2026-11-30 {instant} Europe/Berlin</th><td>{said}</td>' in text
        for elsewhere in ("before the night", "of another pool", "after the night", "shown are the"):
            assert elsewhere not in text
        printed = told.as_json()
        assert printed["pools"][0]["changes"] == 2
        assert [one["detail"]["to"] for one in printed["events"] if one["pool"] == "gpu"] == ["floor", "open"]
        assert text.index("pace on track -> at risk") < text.index("open -> floor")  # in order with the batch's own

    def test_of_hundreds_of_changes_those_that_lasted_longest_are_shown(
        self, store: Database, store_clock: ManualClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("tickets_batch.report.pool_changes.FIRST_LOOK", 7)  # it looks further back by itself
        batch_id = reported_night(store, store_clock, tickets=20, hours=1.0)
        changes(store, store_clock, START + timedelta(minutes=1), 1, reason="for half an hour")
        changes(store, store_clock, START + timedelta(minutes=31), 102, reason="for seconds")
        told = figures_of(store, batch_id)
        text = unescape(page(told))
        assert "What batch had of pool gpu changed 103 times; shown are the 40 changes whose state lasted" in text
        assert text.count("<td>pool gpu: ") == 40
        assert "for half an hour" in text
        assert told.as_json()["pools"][0]["changes"] == 103

    def test_labels_in_any_script_and_with_any_sign_are_shown_as_they_are(self, told: Figures) -> None:
        text = page(told)
        shown = set(told.labels) & set(LABELS)
        assert {"returns & $20 refunds", "Straße <технический> 技術"} <= shown
        assert "<технический>" not in text
        for label in shown:
            assert label in unescape(text)

    def test_the_receipt_comes_first(self, told: Figures) -> None:
        text = page(told)
        assert text.index('class="receipt"') < text.index("<table") < text.index("<svg")
        assert re.search(r"95% interval −?[\d.]+ m?s to −?[\d.]+ m?s\)", receipt_in_words(told)[0])


@on_sqlite
class TestVerb:
    @pytest.fixture
    def here(
        self,
        store: Database,
        store_clock: ManualClock,
        database_url: str,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> Path:
        self.batch_id = reported_night(store, store_clock, tickets=60, hours=1.0)
        folder = tmp_path / "here"
        folder.mkdir()
        monkeypatch.chdir(folder)
        Path("tickets-batch.toml").write_text(
            f'timezone = "Europe/Berlin"\nhome = "home"\ndatabase_url = "{database_url}"\n'
            '[[pool]]\nname = "gpu"\nbase_url = "http://127.0.0.1:9/v1"\nmodel = "m"\n'
            "capacity = { slots = 20, tokens = 60000 }\n"
            "protected = { interactive = { slots = 8, tokens = 24000 }, batch = { slots = 2, tokens = 6000 } }\n",
            encoding="utf-8",
        )
        return folder

    def call(self, capsys: pytest.CaptureFixture[str], arguments: Sequence[str], code: int = 0) -> tuple[str, str]:
        got = run(["report", *arguments])
        out, err = capsys.readouterr()
        assert got == code, err
        return out, err

    def test_the_page_goes_where_it_is_wanted(self, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
        out, err = self.call(capsys, ["latest", "-o", "night.html"])
        assert out == "night.html\n"
        assert "held out" in err
        assert (here / "night.html").read_text(encoding="utf-8").startswith("<!doctype html>")

    def test_by_itself_it_goes_under_home(self, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
        out, _ = self.call(capsys, ["latest"])
        assert Path(out.strip()).is_relative_to("home/reports")
        assert Path(out.strip()).is_file()

    @pytest.mark.usefixtures("here")
    def test_the_page_on_stdout(self, capsys: pytest.CaptureFixture[str]) -> None:
        out, _ = self.call(capsys, ["latest", "-o", "-"])
        assert out.startswith("<!doctype html>")

    @pytest.mark.usefixtures("here")
    def test_the_same_figures_as_json(self, store: Database, capsys: pytest.CaptureFixture[str]) -> None:
        told: dict[str, Any] = json.loads(self.call(capsys, ["latest", "--json"])[0])
        batch = batches.get(store, told["batch_id"])
        assert told["request_counts"]["succeeded"] == batch.succeeded
        assert len(told["receipt"]) == 1
        assert datetime.fromisoformat(told["began_at"]) == batch.started_at

    @pytest.mark.usefixtures("here")
    def test_what_it_counts_is_what_results_writes(
        self, store: Database, capsys: pytest.CaptureFixture[str], tmp_path: Path
    ) -> None:
        told = json.loads(self.call(capsys, ["latest", "--json"])[0])
        write_results(results.stream(store, told["batch_id"]), "jsonl", tmp_path / "rows.jsonl")
        rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text(encoding="utf-8").splitlines()]
        assert Counter(row["label"] for row in rows if row["state"] == "succeeded") == told["labels"]

    @pytest.mark.usefixtures("here")
    @pytest.mark.parametrize("option", ["-h", "--json"])
    def test_figures_need_neither_the_plots_nor_what_only_services_need(self, option: str) -> None:
        code = (
            "import sys\nfrom tickets_batch.cli.run import run\n"
            f"assert run(['report', 'latest', {option!r}]) == 0\n"
            "unwanted = {'celery', 'kombu', 'openai', 'httpx2', 'matplotlib', 'numpy'}\n"
            "print('loaded:', *(unwanted & set(sys.modules)))"
        )
        environment = {**os.environ, "PYTHONPATH": os.fspath(CHECKOUT)}
        done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, env=environment)
        assert done.stdout.splitlines()[-1] == "loaded:"

    @pytest.mark.usefixtures("here")
    def test_a_home_that_cannot_be_written_is_not_talked_about(self) -> None:
        nowhere = dict.fromkeys(("HOME", "MPLCONFIGDIR", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"), "/proc/nowhere")
        environment = {**os.environ, "PYTHONPATH": os.fspath(CHECKOUT), **nowhere}
        command = [sys.executable, "-m", "tickets_batch", "report", "latest", "-o", "night.html"]
        done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
        assert (done.stdout, len(done.stderr.splitlines())) == ("night.html\n", 1), done.stderr

    @pytest.mark.usefixtures("here")
    def test_mistakes_are_told_in_a_line(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert "no batch begins with 'batch_none'" in self.call(capsys, ["batch_none"], 1)[1]
        _, err = self.call(capsys, ["latest", "-o", "nowhere/night.html"], 1)
        assert err == "tickets-batch: nowhere/night.html: No such file or directory: name another file with -o\n"
        _, err = self.call(capsys, ["latest", "--json", "-o", "night.html"], 2)
        assert "leave out" in err


def path_of(plot: Plot, gid: str | None) -> list[str]:
    """The drawing commands of the elements under this name, or of the whole picture."""
    root = ElementTree.fromstring(plot.svg.replace("xlink:href", "href"))
    group = root if gid is None else root.find(f".//*[@id='{plot.name}-{gid}']")
    assert group is not None, f"no {gid} in {plot.name}"
    return [path.get("d", "") for path in group.iter(f"{SVG}path")]


def points(plot: Plot, gid: str | None = None) -> int:
    return sum(len(re.findall(r"[MLC]", drawn)) for drawn in path_of(plot, gid))


def moves(plot: Plot, gid: str) -> int:
    """The pieces that a curve is in."""
    return sum(drawn.count("M") for drawn in path_of(plot, gid))
