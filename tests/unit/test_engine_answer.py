"""What the engine answers, and how many tokens that takes."""

import json
from collections import Counter

import pytest

from tests.engine.answer import (
    Answer,
    AnswerSettings,
    count_tokens,
    expected_label,
    free_answer,
    schema_answer,
    ticket_hash,
    ticket_of,
)

LABELS = ["billing", "shipping", "technical"]
SCHEMA = {"type": "object", "properties": {"label": {"enum": LABELS}}}


@pytest.mark.parametrize(("text", "tokens"), [("", 0), ("a", 1), ("abcd", 1), ("abcde", 2), ("ééé", 2), ("\ud800", 1)])
def test_tokens_are_four_bytes_rounded_up(text: str, tokens: int) -> None:
    assert count_tokens(text) == tokens


@pytest.mark.parametrize(
    ("message", "ticket"),
    [
        ("Just this.", "Just this."),
        ("Sort it.\n<ticket>\nMy parcel\n</ticket>\nThe label is:", "\nMy parcel\n"),
        ('<ticket id="7">My parcel</ticket>', "My parcel"),
        ("Sort it.\n```text\nMy parcel\n```\n", "My parcel\n"),
        ("````\na ``` b\n```\nc\n````", "a ``` b\n```\nc\n"),
    ],
)
def test_a_ticket_is_what_the_message_fences(message: str, ticket: str) -> None:
    assert ticket_of(message) == ticket


def test_a_label_depends_on_the_text_alone() -> None:
    assert expected_label("My parcel", LABELS) == expected_label("  My\nparcel ", LABELS[::-1])
    assert ticket_hash("Größe") == ticket_hash("Gro\u0308ße")
    spread = Counter(expected_label(f"Ticket {number}", LABELS) for number in range(3000))
    assert set(spread) == set(LABELS)
    assert min(spread.values()) > 900


def test_there_must_be_labels_to_choose_from() -> None:
    with pytest.raises(ValueError, match="no labels"):
        expected_label("My parcel", [])


def test_a_schema_without_a_label_is_filled_in_all_the_same() -> None:
    schema = {
        "type": "object",
        "properties": {"ok": {"type": "boolean"}, "words": {"type": "array"}, "n": {"type": "integer"}, "s": {}},
    }
    answer = schema_answer(schema, "My parcel", 100, AnswerSettings())
    assert json.loads(answer.text) == {"ok": True, "words": [], "n": 0, "s": "text"}


def test_a_longer_answer_says_its_text_bit_by_bit_and_never_exceeds_the_cap() -> None:
    answer = schema_answer(SCHEMA, "My parcel", 100, AnswerSettings(answer_tokens=40))
    assert answer.tokens == 40
    said = [answer.text_until(token) for token in range(1, 41)]
    assert said[0] >= 1
    assert said == sorted(said)
    assert said[-1] == len(answer.text)
    assert schema_answer(SCHEMA, "My parcel", 10, AnswerSettings(answer_tokens=40)).tokens == 10


def test_free_text_ends_at_the_cap_or_where_it_is_told_to() -> None:
    assert free_answer(100, AnswerSettings()).finish_reason == "length"
    short = free_answer(100, AnswerSettings(chat_tokens=7))
    assert (short.tokens, short.finish_reason, count_tokens(short.text)) == (7, "stop", 7)
    assert free_answer(None, AnswerSettings()).tokens == 64


def test_an_answer_without_text_has_said_it_all_at_once() -> None:
    assert Answer("", 5).text_until(1) == 0
