"""What a dry run says of answers that there are already is what the submit then does, on both databases."""

import csv
from dataclasses import replace
from pathlib import Path

import pytest

from jobs import preview as previewing
from jobs.intake.source import open_source
from jobs.preview import Preview, preview
from jobs.store import submissions
from jobs.store.answered import Answered
from jobs.store.database import Database
from jobs.store.standing import Standings
from jobs.ticket import Ticket
from tests.support.intake import DAY
from tests.support.store import claim, request, submit, succeed, ticket
from tickets_batch.settings import Source as SourceSettings

ASKED = request()


def previewed(store: Database, folder: Path, rows: list[Ticket], batch_id: str | None) -> Preview:
    path = folder / "tickets.csv"
    with path.open("w", newline="") as file:
        lines = [[row.custom_id, row.subject, row.body] for row in rows]
        csv.writer(file).writerows([["id", "subject", "body"], *lines])
    return preview(
        open_source(SourceSettings(path=str(path)), DAY, every_row=True),
        tokens_of=len,
        shared_tokens=100,
        output_tokens=32,
        slots=4,
        slot_tokens_per_second=100.0,
        standing=Standings.of(store, batch_id, ASKED.spec_hash, ASKED.model),
        answered=Answered(store, batch_id, ASKED.spec_hash, ASKED.model),
    )


def same_text(number: int, of: int) -> Ticket:
    """Another ticket with the text of that one."""
    return replace(ticket(number), subject=ticket(of).subject, body=ticket(of).body)


def test_what_an_earlier_batch_has_answered_is_not_for_the_model(
    store: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(previewing, "LOOKED_UP", 3)
    earlier = submit(store, [ticket(number) for number in range(5)]).batch_id
    succeed(store, claim(store, earlier, limit=4))
    rows = [*(ticket(number) for number in range(4, 8)), *(same_text(10 + number, of=number) for number in range(4))]

    seen = previewed(store, tmp_path, rows, None)
    assert (seen.tickets, seen.to_do, seen.reused, seen.already) == (8, 4, 4, 0)
    asked = [132 + len(f"{row.subject}\n{row.body}") for row in rows[:4]]
    assert seen.tokens.total == sum(asked)
    assert seen.seconds == max(sum(asked) / 4, max(asked)) / 100

    done = submit(store, rows, new=True)
    assert (done.added, done.reused) == (seen.to_do + seen.reused, seen.reused)


def test_the_answers_of_the_batch_itself_are_not_reused(store: Database, tmp_path: Path) -> None:
    own = submit(store, [ticket(1)]).batch_id
    succeed(store, claim(store, own))
    rows = [ticket(1), same_text(2, of=1)]

    seen = previewed(store, tmp_path, rows, own)
    assert (seen.to_do, seen.reused, seen.already) == (1, 0, 1)
    assert submissions.target(store, ASKED) == own
    done = submit(store, rows)
    assert (done.added, done.reused, done.already) == (1, 0, 1)


def test_another_model_has_answered_nothing(store: Database) -> None:
    succeed(store, claim(store, submit(store, [ticket(1)]).batch_id))
    ours = Answered(store, None, ASKED.spec_hash, ASKED.model)
    assert ours.among({ours.key_of(ticket(1)), ours.key_of(ticket(2))}) == {ours.key_of(ticket(1))}
    theirs = Answered(store, None, ASKED.spec_hash, "another")
    assert theirs.among({theirs.key_of(ticket(1))}) == set()
