"""Submitting the same source again: what is taken over, what is not, and what `--dry-run` says of it before."""

import csv
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from jobs.store import batches
from tests.support.in_process import Here, directory
from tests.support.store import claim, succeed
from tickets_batch.cli.database import opened
from tickets_batch.settings import load

SETTINGS = """
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
protected = { batch = { slots = 20, tokens = 60000 } }
"""
ROWS = [
    ["T1", "2026-11-30 09:00", "Late", "Where is my parcel?"],
    ["T2", "2026-11-30 10:00", "Twice", "You charged me twice."],
]
NEW = ["T3", "2026-11-30 12:00", "New", "Still waiting."]
CHANGED = [["T1", "2026-11-30 09:00", "Late", "It has come."], ROWS[1]]
DRY = ("submit", "--date", "2026-11-30", "--dry-run")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Here]:
    with directory(tmp_path, monkeypatch, SETTINGS):
        write(ROWS)
        yield Here(capsys)


def write(rows: list[list[str]]) -> None:
    with Path("tickets.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["id", "created_at", "subject", "body"], *rows])


def complete(batch_id: str) -> None:
    """A worker answers all that there is."""
    with opened(load()) as db:
        succeed(db, claim(db, batch_id))


def deadline_of(here: Here, batch_id: str) -> str | None:
    deadline: str | None = here.json("status", batch_id)["deadline_at"]
    return deadline


def clock_in(hours: int) -> str:
    """What a clock shows then: which of two times of day comes first depends on when it is asked."""
    return f"{datetime.now(UTC) + timedelta(hours=hours):%H:%M}"


class TestOptionsThatAreNotTakenOver:
    def test_a_batch_at_work_keeps_its_times_and_says_so_in_one_line(self, here: Here) -> None:
        deadline = clock_in(hours=9)
        batch_id = here.submit("--deadline", deadline)
        kept = deadline_of(here, batch_id)
        assert here.submit("--deadline", clock_in(hours=10), "--not-before", clock_in(hours=8)) == batch_id
        (line,) = [line for line in here.err.splitlines() if "keeps" in line]
        assert line.startswith(f"{batch_id} keeps its deadline, ")
        assert line.endswith(
            f"{deadline} UTC and its begin, none: it was at work when this was submitted; "
            f"tickets-batch cancel {batch_id}, then submit --new, changes that, and what is done is not done again"
        )
        assert deadline_of(here, batch_id) == kept

    def test_one_that_has_ended_keeps_them_unless_something_new_comes(self, here: Here) -> None:
        batch_id = here.submit()
        complete(batch_id)
        here("submit", "--date", "2026-11-30", "--deadline", "07:00")
        assert (
            f"{batch_id} keeps its deadline, none: it has ended, and nothing new came; submit --new makes a batch with "
            "that, and what is done is not done again"
        ) in here.err
        write([*ROWS, NEW])
        here.submit("--deadline", "07:00")
        assert "keeps" not in here.err
        assert deadline_of(here, batch_id) is not None

    def test_the_same_again_needs_no_word(self, here: Here) -> None:
        here.submit("--deadline", "07:00")
        here.submit("--deadline", "07:00")
        assert "keeps" not in here.err
        here.submit()
        assert "keeps" not in here.err, "the deadline of the settings is for new batches"


class TestASecondBatch:
    def test_the_one_that_goes_on_is_named_with_what_ends_it(self, here: Here) -> None:
        first = here.submit("--model", "wrong")
        here("submit", "--date", "2026-11-30", code=1)
        assert here.err.endswith(
            f"{first} of this source and date was submitted with another model (wrong, now test-model): add --new to "
            f"make a second batch; {first} goes on beside it, unless tickets-batch cancel {first} ends it first\n"
        )
        here.submit("--new")
        line = f"{first} of the same source and date goes on beside it: tickets-batch cancel {first} ends it"
        assert here.err.splitlines()[-2] == line
        here("cancel", first)
        here.submit("--new")
        assert line not in here.err


class TestDryRun:
    def test_without_a_batch_it_would_be_a_new_one(self, here: Here) -> None:
        assert "batch      a new one\n" in here(*DRY)
        shown = here.json(*DRY)
        assert (shown["batch_id"], shown["tickets"], shown["to_do"], shown["already"]) == (None, 2, 2, 0)

    def test_nothing_new(self, here: Here) -> None:
        batch_id = here.submit()
        lines = here(*DRY).splitlines()
        assert lines[0] == "would submit 0 of 2 tickets of tickets.csv (CSV), 2026-11-30 (UTC)"
        assert lines[1] == f"batch      {batch_id}, running, has 2 of them already; it would stay as it is"
        assert [line for line in lines if line.startswith(("tokens", "time"))] == [], "there is nothing to do"
        shown = here.json(*DRY)
        assert (shown["batch_id"], shown["to_do"], shown["already"], shown["refused"]) == (batch_id, 0, 2, None)
        assert shown["tokens"]["total"] == 0

    def test_what_is_new_tops_up_and_opens_again(self, here: Here) -> None:
        batch_id = here.submit()
        write([*ROWS, NEW])
        assert f"{batch_id}, running, has 2 of them already; it would be topped up" in here(*DRY)
        write(ROWS)
        complete(batch_id)
        write([*ROWS, NEW])
        assert "would submit 1 of 3 tickets" in here(*DRY, "--deadline", "07:00")
        assert f"{batch_id}, completed, has 2 of them already; it would be opened again" in here(*DRY)
        assert here.json(*DRY, "--deadline", "07:00")["deadline_at"] is not None
        here.submit("--deadline", "07:00")
        assert "1 ticket added, 2 there already" in here.err, "and so it is"

    def test_what_an_earlier_batch_has_answered_costs_nothing(self, here: Here) -> None:
        complete(here.submit())
        write([*ROWS, NEW])
        lines = here(*DRY, "--new").splitlines()
        assert lines[0].startswith("would submit 3 tickets of tickets.csv")
        assert "reused     2 of these answered from an earlier batch, 1 left for the model" in lines
        shown = here.json(*DRY, "--new")
        assert (shown["tickets"], shown["to_do"], shown["reused"], shown["already"]) == (3, 1, 2, 0)
        assert shown["tokens"]["total"] == shown["tokens"]["largest"], "of the new one alone"
        here.submit("--new")
        assert "3 tickets added, 2 of them answered from an earlier batch" in here.err, "and so it is"

    def test_where_all_is_answered_the_model_is_asked_nothing(self, here: Here) -> None:
        complete(here.submit())
        lines = here(*DRY, "--new").splitlines()
        assert "reused     2 of these answered from an earlier batch, none left for the model" in lines
        assert [line for line in lines if line.startswith(("tokens", "time"))] == []
        shown = here.json(*DRY, "--new")
        assert (shown["to_do"], shown["reused"], shown["tokens"]["total"]) == (0, 2, 0)

    def test_changed_texts(self, here: Here) -> None:
        here.submit()
        write(CHANGED)
        assert (
            "has 2 of them already, 1 of these with another text now, which stays as it is: --update takes it"
            in here(*DRY)
        )
        assert "which would be taken anew; it would be topped up" in here(*DRY, "--update")
        assert here.json(*DRY, "--update")["to_do"] == 1

    def test_what_is_kept_is_said_before_too(self, here: Here) -> None:
        batch_id = here.submit("--deadline", "07:00")
        shown = here.json(*DRY, "--deadline", "08:30")
        assert shown["deadline_at"] == deadline_of(here, batch_id)
        assert shown["notes"][-1].startswith(f"{batch_id} keeps its deadline, ")

    @pytest.mark.parametrize(
        ("more", "expected"),
        [
            (("--model", "other"), "was submitted with another model (test-model, now other)"),
            (("--labels", "yes,no"), "was submitted with other labels (billing, shipping gone; yes, no new)"),
        ],
    )
    def test_what_submit_would_refuse_is_refused_after_the_figures(
        self, here: Here, more: tuple[str, ...], expected: str
    ) -> None:
        here.submit()
        assert "batch      none: submit would refuse this\n" in here(*DRY, *more, code=1)
        (line,) = here.err.splitlines()
        assert expected in line
        assert expected in here.json(*DRY, *more, code=1)["refused"]
        here(*DRY, *more, "--new")

    def test_a_cancelled_batch_stays_closed(self, here: Here) -> None:
        here("cancel", here.submit())
        here(*DRY, code=1)
        assert "stays closed: add --new" in here.err

    def test_no_tickets(self, here: Here) -> None:
        write([])
        here(*DRY, code=1)
        assert here.err.startswith(
            "tickets-batch: no usable tickets for 2026-11-30 in tickets.csv (CSV): it has no rows"
        )
        here(*DRY, "--allow-empty")

    def test_it_changes_nothing(self, here: Here) -> None:
        batch_id = here.submit()
        write([*CHANGED, NEW])
        here(*DRY, "--update")
        with opened(load()) as db:
            assert batches.get(db, batch_id).total == 2
