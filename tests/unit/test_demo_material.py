"""The demo's tickets and spec: complete, usable by the product's own rules, and no answer given away."""

import csv
import io
import re
from importlib.resources import files

from jobs.spec import ClassificationSpec
from tickets_batch.demo.material import classification
from tickets_batch.settings import Classification

# Some zone has no such time on the night its clocks go forward; any day may be the demo's.
EARLIEST, LATEST = "04:00:00", "22:00:00"


def spec() -> ClassificationSpec:
    return ClassificationSpec.of(Classification.model_validate(classification()))


def rows() -> list[dict[str, str]]:
    text = files("tickets_batch.demo").joinpath("tickets.csv").read_text(encoding="utf-8")
    return list(csv.DictReader(io.StringIO(text, newline="")))


def test_every_ticket_is_labelled_by_hand_with_a_label_of_the_spec() -> None:
    assert {row["expected"] for row in rows()} == set(spec().labels)


def test_about_sixty_tickets_with_ids_of_their_own() -> None:
    assert 55 <= len({row["id"] for row in rows()}) == len(rows()) <= 70


def test_their_times_exist_on_every_day_of_every_zone() -> None:
    times = [row["created_at"] for row in rows()]
    assert times == sorted(times)
    assert all(re.fullmatch(r"\d\d:\d\d:\d\d", time) for time in times)
    assert EARLIEST < times[0] < times[-1] < LATEST


def test_no_ticket_is_among_the_examples_that_the_model_is_shown() -> None:
    def plain(text: str) -> str:
        return " ".join(text.casefold().split())

    shown = {plain(example.text) for example in spec().examples}
    for row in rows():
        ticket = plain(f"{row['subject']} {row['body']}")
        assert not any(example in ticket or ticket in example for example in shown)


def test_every_label_is_shown_by_an_example() -> None:
    assert {example.label for example in spec().examples} == set(spec().labels)
