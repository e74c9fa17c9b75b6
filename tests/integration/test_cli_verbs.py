"""The verbs on a database of their own: what they print where, what they change, and how they end."""

import csv
import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs.store import batches, claims, moves, services
from jobs.store.database import Database
from tests.support.in_process import Here, directory
from tickets_batch.local.home import Home

SETTINGS = """
timezone = "Europe/Berlin"
home = "home"
[source]
path = "tickets.csv"
[classification.labels]
billing = "charges"
shipping = "delivery"
[[pool]]
name = "gpu"
base_url = "http://127.0.0.1:9/v1"
model = "test-model"
capacity = { slots = 20, tokens = 60000 }
protected = { interactive = { slots = 8, tokens = 24000 }, batch = { slots = 2, tokens = 6000 } }
"""
DEEP = """
[[pool]]
name = "deep"
base_url = "http://127.0.0.1:9/v1"
model = "large-model"
capacity = { slots = 64, tokens = 400000 }
protected = { batch = { slots = 64, tokens = 400000 } }
"""
KEYS = [
    *("batch_id", "date", "state", "blocked", "created_at", "not_before", "deadline_at", "finished_at"),
    *(
        "request_counts",
        "rate_per_second",
        "eta",
        "pace",
        "forecast",
        "waits_for",
        "forecast_errors",
        "limit",
        "in_flight",
        "load",
        "yields",
        "withdrawn",
        "tokens",
        "pools",
    ),
]
COUNTS = [
    *("total", "pending", "running", "succeeded", "failed", "expired", "cancelled", "reused", "rejected"),
]
ROWS = [
    ["T1", "2026-11-30 09:00", "Late", "Where is my parcel?"],
    ["T2", "2026-11-30 10:00", "Twice", "You charged me twice."],
    ["T3", "2026-11-29 10:00", "Old", "From yesterday."],
    ["", "2026-11-30 11:00", "No id", "Nobody knows me."],
]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Here]:
    with directory(tmp_path, monkeypatch, SETTINGS):
        write(ROWS)
        yield Here(capsys)


def write(rows: list[list[str]], name: str = "tickets.csv") -> None:
    with Path(name).open("w", newline="") as file:
        csv.writer(file).writerows([["id", "created_at", "subject", "body"], *rows])


@pytest.fixture
def db(here: Here) -> Iterator[Database]:
    """The database of the directory, for what only services do."""
    Path("home").mkdir()
    opened = Database.open(f"sqlite:///{Path('home/tickets-batch.db').absolute()}")
    yield opened
    opened.dispose()


class TestSubmit:
    def test_it_saves_and_says_that_nothing_is_running(self, here: Here) -> None:
        batch_id = here.submit()
        assert batch_id.startswith("batch_20261130_")
        assert here.err.splitlines()[1:] == [
            f"{batch_id} created from tickets.csv (CSV), 2026-11-30 (Europe/Berlin): 2 tickets added",
            "1 row of other days left out: --all takes them too",
            "1 row cannot be used:",
            "  line 5: the id is empty",
            f"tickets-batch: {batch_id} is saved, but nothing is running: start tickets-batch up, or submit again with "
            "--wait",
        ]

    def test_with_a_live_scheduler_all_is_well(self, here: Here, db: Database) -> None:
        here.submit()
        services.beat(db, "scheduler", "one", "here", 1, {})
        here("submit", "--date", "2026-11-30")
        assert "0 tickets added, 2 there already" in here.err

    def test_it_says_where_it_is_blind(self, here: Here) -> None:
        here.submit()
        assert here.err.splitlines()[0] == (
            "pool gpu has no signal: batch is blind to the chat there, and stays at its floor, 2 of 20 slots; "
            "add a [[pool.signal]], or protect all of it for batch where no chat goes there"
        )

    def test_a_pool_of_batchs_own_needs_no_signal(self, here: Here) -> None:
        Path("tickets-batch.toml").write_text(SETTINGS + DEEP)
        here.submit("--pool", "deep")
        assert "blind" not in here.err

    def test_the_pools_are_those_of_the_settings_in_their_order(self, here: Here, db: Database) -> None:
        Path("tickets-batch.toml").write_text(SETTINGS + DEEP)
        batch = batches.get(db, here.submit())
        assert (batch.pools, batch.model) == (("gpu", "deep"), "test-model")

    def test_a_batch_can_name_its_pools_in_its_own_order(self, here: Here, db: Database) -> None:
        Path("tickets-batch.toml").write_text(SETTINGS + DEEP)
        batch = batches.get(db, here.submit("--pool", "deep", "--pool", "gpu", "--pool", "deep"))
        assert (batch.pools, batch.model) == (("deep", "gpu"), "large-model")

    def test_a_batch_at_work_keeps_its_pools(self, here: Here, db: Database) -> None:
        Path("tickets-batch.toml").write_text(SETTINGS + DEEP.replace("large-model", "test-model"))
        batch_id = here.submit("--pool", "gpu")
        assert here.submit("--pool", "deep") == batch_id
        assert f"{batch_id} keeps its pools, gpu: it was at work when this was submitted" in here.err
        assert batches.get(db, batch_id).pools == ("gpu",)
        here.submit("--pool", "gpu")
        assert "keeps its pools" not in here.err

    def test_a_pool_that_is_not_there(self, here: Here) -> None:
        here("submit", "--pool", "gpu", "--pool", "tpu", code=2)
        assert here.err == "tickets-batch: --pool tpu: there is no such pool; the settings have gpu\n"
        assert here.json("status") == {"data": []}

    def test_json_has_the_keys_of_the_documentation(self, here: Here) -> None:
        shown = here.json("submit", "--date", "2026-11-30", code=1)
        assert list(shown) == KEYS
        assert list(shown["request_counts"]) == COUNTS
        assert (shown["date"], shown["state"], shown["request_counts"]["total"]) == ("2026-11-30", "running", 2)
        assert shown["request_counts"]["rejected"] == 1

    def test_again_adds_what_is_new_to_the_same_batch(self, here: Here) -> None:
        batch_id = here.submit()
        write([*ROWS, ["T4", "2026-11-30 12:00", "New", "Still waiting."]])
        assert here.submit() == batch_id
        assert "1 ticket added, 2 there already" in here.err

    def test_changed_texts_are_listed_and_taken_only_when_asked(self, here: Here) -> None:
        here.submit()
        write([["T1", "2026-11-30 09:00", "Late", "It has come."], ROWS[1]])
        here.submit()
        assert "another text now: 1 ticket (T1); --update takes them" in here.err
        here.submit("--update")
        assert "1 changed ticket taken" in here.err

    def test_a_changed_spec_is_refused_without_new(self, here: Here) -> None:
        first = here.submit()
        here("submit", "--date", "2026-11-30", "--labels", "yes,no", code=1)
        assert "add --new to make a second batch" in here.err
        assert here.submit("--labels", "yes,no", "--new") != first

    def test_every_row_whatever_its_date(self, here: Here) -> None:
        assert here.json("submit", "--all", code=1)["request_counts"]["total"] == 3

    def test_another_file(self, here: Here) -> None:
        write([["X1", "2026-11-30 09:00", "", "Other."]], "other.csv")
        assert (
            here.json("submit", "--date", "2026-11-30", "--input", "other.csv", code=1)["request_counts"]["total"] == 1
        )

    def test_no_tickets_is_an_error_unless_allowed(self, here: Here) -> None:
        here("submit", "--date", "2026-01-01", code=1)
        assert here.out == ""
        assert "--allow-empty" in here.err
        assert here.json("submit", "--date", "2026-01-01", "--allow-empty")["state"] == "completed"

    def test_the_deadline_of_the_command_line_stands_over_the_settings(self, here: Here) -> None:
        assert here.json("submit", "--date", "2026-11-30", "--deadline", "07:00", code=1)["deadline_at"].endswith(
            ("T06:00:00Z", "T05:00:00Z")
        )

    def test_not_before_an_hour(self, here: Here) -> None:
        shown = here.json("submit", "--date", "2026-11-30", "--not-before", "22:00", code=1)
        assert shown["not_before"].endswith(("T21:00:00Z", "T20:00:00Z"))

    @pytest.mark.parametrize(
        ("arguments", "expected"),
        [
            (["--date", "someday"], '"someday" is not a day: write today, yesterday or a date as YYYY-MM-DD'),
            (["--date", "2026-02-30"], '"2026-02-30" is not in the calendar: write today, yesterday or a date'),
            (["--deadline", "7"], '"7" is not a time of day: write HH:MM, for example 07:00'),
            (["--not-before", "25:00"], '"25:00" is not a time of day: write HH:MM, for example 07:00'),
            (["--deadline", "7", "--dry-run"], '"7" is not a time of day: write HH:MM, for example 07:00'),
            (["--all", "--date", "2026-11-30"], "--all takes every row, whatever its date: leave --date or --all out."),
            (["--all", "--date", "today", "--dry-run"], "leave --date or --all out."),
        ],
    )
    def test_a_wrong_value_is_wrong_usage_and_changes_nothing(
        self, here: Here, arguments: list[str], expected: str
    ) -> None:
        here("submit", *arguments, code=2)
        assert expected in here.err.splitlines()[-1]
        assert here.json("status") == {"data": []}

    def test_a_source_that_is_not_there_changes_nothing(self, here: Here) -> None:
        here("submit", "--input", "gone.csv", code=1)
        assert "gone.csv" in here.err.splitlines()[-1]
        assert here.json("status") == {"data": []}

    @pytest.mark.parametrize(
        ("removed", "expected"),
        [("[[pool]]", "no model is configured"), ("[classification", "no labels are configured")],
    )
    def test_what_is_not_configured_is_named(self, here: Here, removed: str, expected: str) -> None:
        parts = [part for part in SETTINGS.replace("\n[", "\n\0[").split("\0") if not part.startswith(removed)]
        Path("tickets-batch.toml").write_text("".join(parts))
        here("submit", code=2)
        assert here.err.startswith(f"tickets-batch: {expected}")

    def test_a_configured_redis_that_is_away_is_said_before_anything_is_saved(
        self, here: Here, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("TICKETS_BATCH__REDIS_URL", "redis://127.0.0.1:9/0")
        here("submit", "--date", "2026-11-30", "--wait", code=1)
        assert here.err.startswith("tickets-batch: Redis does not answer")
        assert here.json("status") == {"data": []}

    def test_so_is_a_sink_whose_secret_is_not_there_and_results_say_it_again(
        self, here: Here, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with Path("tickets-batch.toml").open("a") as settings:
            settings.write('[sink]\nurl = { env = "WAREHOUSE_URL" }\ntable = "labels"\n')
        missing = "tickets-batch: the environment variable WAREHOUSE_URL is not set: export it, or change the reference"
        here("submit", "--date", "2026-11-30", "--wait", code=2)
        assert here.err == f"{missing}\n"
        assert here.json("status") == {"data": []}, "nothing was begun"
        batch_id = here.submit()
        here("results", batch_id, "--to-sink", code=2)
        kept = f"no result was written, all are kept: tickets-batch results {batch_id} --to-sink writes them"
        assert here.err == f"{missing}; {kept}\n"
        monkeypatch.setenv("WAREHOUSE_URL", "sqlite:///warehouse.db")
        here("results", batch_id, "--to-sink", code=1)
        assert here.err.startswith("tickets-batch: sink.url: there is no database file warehouse.db")


class TestDryRun:
    def test_it_shows_and_changes_nothing(self, here: Here) -> None:
        shown = here("submit", "--date", "2026-11-30", "--dry-run")
        assert shown.startswith("would submit 2 tickets of tickets.csv (CSV), 2026-11-30 (Europe/Berlin), 1 row of")
        assert "tokens     about " in shown
        assert "time       not known before a first batch on this model has completed" in shown
        assert "  line 5: the id is empty" in shown
        assert not Path("home").exists()

    def test_json(self, here: Here) -> None:
        shown = here.json("submit", "--date", "2026-11-30", "--dry-run", "--deadline", "none")
        assert (shown["tickets"], shown["rejected"], shown["outside_day"]) == (2, 1, 1)
        assert shown["tokens"]["total"] > shown["tokens"]["largest"] > 0
        assert shown["estimated_seconds"] is None
        assert shown["rejections"] == [{"line": 5, "reason": "the id is empty", "custom_id": None}]


class TestStatus:
    def test_before_the_first_batch(self, here: Here) -> None:
        place = Path("home/tickets-batch.db").absolute()
        assert here("status") == f"no batch yet in {place}: tickets-batch submit makes one\n"
        assert not Path("home").exists()

    def test_all_batches_are_a_table(self, here: Here) -> None:
        batch_id = here.submit()
        head, line = here("status").splitlines()
        assert head.split() == ["batch", "date", "state", "done", "failed", "expired", "deadline"]
        assert line.split() == [batch_id, "2026-11-30", "running", "0", "of", "2", "0", "0", "none"]

    def test_one_batch_by_id_by_its_beginning_and_as_the_latest(self, here: Here) -> None:
        batch_id = here.submit()
        shown = {here("status", text) for text in (batch_id, batch_id[:-2], "latest")}
        assert len(shown) == 1
        words = shown.pop()
        assert words.startswith(f"{batch_id}: running\n")
        assert "tickets    2, 2 pending, 1 row rejected" in words
        assert "limit      unknown: no Redis has been started here yet" in words
        assert "at work    nobody" in words

    def test_without_redis_the_rest_is_shown(self, here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
        batch_id = here.submit()
        monkeypatch.setenv("TICKETS_BATCH__REDIS_URL", "redis://127.0.0.1:9/0")
        assert "limit      unknown: Redis does not answer" in here("status", batch_id)
        shown = here.json("status", batch_id)
        assert (shown["limit"], shown["load"], shown["request_counts"]["total"]) == (None, None, 2)
        (pool,) = shown["pools"]
        known = {"name": "gpu", "capacity": {"slots": 20, "tokens": 60_000}, "floor": {"slots": 2, "tokens": 6_000}}
        assert {key: value for key, value in pool.items() if value is not None} == known

    def test_an_embedded_redis_that_has_ended_is_no_setting_to_check(self, here: Here) -> None:
        batch_id = here.submit()
        Path("home/run").mkdir(parents=True, exist_ok=True)
        Path("home/run/redis-url").write_text("redis://:secret@127.0.0.1:9/0")
        words = " ".join(here("status", batch_id).split())
        assert "limit unknown: the Valkey server of this home does not answer: submit --wait and up run it" in words

    def test_json_of_all_and_of_one_are_alike(self, here: Here) -> None:
        batch_id = here.submit()
        assert here.json("status") == {"data": [here.json("status", batch_id)]}

    def test_an_unknown_batch(self, here: Here) -> None:
        here.submit()
        here("status", "nope", code=1)
        assert here.err == "tickets-batch: no batch begins with 'nope': tickets-batch status lists them\n"


class TestControl:
    def test_pause_and_resume(self, here: Here) -> None:
        batch_id = here.submit()
        here("pause", "latest")
        assert here.err == f"{batch_id} is paused: tickets-batch resume {batch_id} lets it go on\n"
        assert here.json("status", batch_id)["state"] == "paused"
        here("pause", batch_id, code=1)
        here("resume", batch_id)
        assert here.json("status", batch_id)["state"] == "running"

    def test_cancel_ends_what_has_not_begun(self, here: Here) -> None:
        batch_id = here.submit()
        here("cancel", batch_id)
        assert here.err == f"{batch_id} is cancelled: 0 of 2 tickets done\n"
        here("cancel", batch_id, code=1)
        assert here.err == f"tickets-batch: batch {batch_id} is cancelled: nothing to cancel\n"

    def test_cancel_takes_back_what_workers_hold(self, here: Here, db: Database) -> None:
        batch_id = here.submit()
        claims.claim(db, batch_id, 1, "worker", 15)
        here("cancel", batch_id)
        assert here.err == f"{batch_id} is cancelling: 0 of 2 tickets done, taking back 1 that workers hold\n"

    def test_retry_under_a_time_of_day_that_is_none_is_wrong_usage(self, here: Here) -> None:
        batch_id = here.submit()
        here("retry", batch_id, "--deadline", "25:00", code=2)
        assert here.err == 'tickets-batch: "25:00" is not a time of day: write HH:MM, for example 07:00\n'

    def test_nothing_to_retry(self, here: Here) -> None:
        here.submit()
        here("retry", "latest", code=1)
        assert "has no failed or expired jobs: nothing to retry" in here.err

    def test_retry_gives_expired_tickets_a_new_deadline(self, here: Here, db: Database) -> None:
        batch_id = here.submit()
        expire(db, batch_id)
        assert here.json("status", batch_id)["state"] == "expired"
        here("retry", batch_id, "--deadline", "07:00")
        assert here.err.startswith(f"{batch_id}: 2 tickets back to work, deadline ")
        assert here.json("status", batch_id)["state"] == "running"


class TestResults:
    def test_rows_go_to_stdout_and_talk_does_not(self, here: Here) -> None:
        batch_id = here.submit()
        rows = list(csv.DictReader(here("results", batch_id).splitlines()))
        assert [(row["custom_id"], row["state"]) for row in rows] == [("T1", "pending"), ("T2", "pending")]
        assert here.err == ""

    def test_a_file_is_named_on_stderr_and_its_ending_says_its_form(self, here: Here) -> None:
        batch_id = here.submit()
        assert here("results", batch_id, "-o", "out.jsonl") == ""
        assert here.err == f"{batch_id}: 2 rows in out.jsonl\n"
        assert [json.loads(line)["custom_id"] for line in Path("out.jsonl").read_text().splitlines()] == ["T1", "T2"]

    def test_an_ending_that_is_no_form_is_refused_unless_one_is_named(self, here: Here) -> None:
        batch_id = here.submit()
        here("results", batch_id, "-o", "labels.xlsx", code=2)
        assert here.err.startswith("tickets-batch: labels.xlsx: results are written as .csv or .jsonl, not as .xlsx: ")
        assert not Path("labels.xlsx").exists()
        here("results", batch_id, "-o", "labels.txt", "--format", "csv")
        here("results", batch_id, "-o", "labels")
        assert Path("labels").read_text() == Path("labels.txt").read_text()

    def test_a_full_disk_costs_nothing(self, here: Here) -> None:
        batch_id = here.submit()
        here("results", batch_id, "-o", "/dev/full", code=1)
        assert here.err.startswith("tickets-batch: cannot write the results to /dev/full: No space left on device; ")


class TestDatabase:
    def test_a_configured_one_is_upgraded_by_hand(self, here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TICKETS_BATCH__DATABASE_URL", "sqlite:///own.db")
        here("submit", "--date", "2026-11-30", code=1)
        assert here.err == "tickets-batch: the database has no tables yet: run tickets-batch db upgrade\n"
        here("db", "upgrade")
        here("db", "upgrade")
        assert here.submit().startswith("batch_")

    def test_one_that_is_away_is_one_line_without_its_password(
        self, here: Here, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("TICKETS_BATCH__DATABASE_URL", "postgresql+psycopg://u:sesame@127.0.0.1:9/t")
        here("submit", "--date", "2026-11-30", code=1)
        assert here.err.count("\n") == 1
        assert here.err.startswith("tickets-batch: cannot use the database postgresql+psycopg://u:***@127.0.0.1:9/t: ")


class TestDoctor:
    def test_what_is_wrong_is_named_and_the_exit_code_says_so(self, here: Here) -> None:
        lines = here("doctor", code=1).splitlines()
        levels = {line.split()[1]: line.split()[0] for line in lines}
        assert levels["database"] == levels["source"] == levels["labels"] == "ok"
        assert any(line.startswith("problem  pool gpu     http://127.0.0.1:9/v1: unreachable") for line in lines)
        assert any("blind to the chat" in line for line in lines)

    def test_an_embedded_server_that_stands_still_is_no_server(self, here: Here) -> None:
        home = Home(Path("home"))
        home.make()
        with socket.create_server(("127.0.0.1", 0)) as silent:
            home.redis_url_file.write_text(f"redis://:word@127.0.0.1:{silent.getsockname()[1]}/0\n")
            assert "problem  redis        the embedded server is there but does not answer" in here("doctor", code=1)

    def test_json(self, here: Here) -> None:
        shown = here.json("doctor", code=1)
        assert shown["ok"] is False
        assert {"about", "level", "words"} == set(shown["checks"][0])


def expire(db: Database, batch_id: str) -> None:
    """Let the batch's deadline pass."""
    from sqlalchemy import update

    from jobs.tables import batches as table

    with db.begin() as connection:
        past = batches.get(db, batch_id).created_at
        connection.execute(update(table).where(table.c.id == batch_id).values(deadline_at=past))
    moves.expire_overdue(db)
