"""What counts as a label in what a model says: whatever means exactly one, and never a guess between two."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.answer import (
    CUT_SHORT,
    EMPTY,
    FOREIGN_LABEL,
    NO_LABEL,
    NOT_JSON,
    SEVERAL_LABELS,
    InvalidOutput,
    parse_answer,
)
from jobs.spec import ClassificationSpec, answer_text

LABELS = {"billing": "", "shipping": "", "Straße und Weg": "", "c++": ""}
SPEC = ClassificationSpec(labels=LABELS)


@pytest.mark.parametrize(
    "raw",
    [
        '{"label": "billing"}',
        '  {"label":"billing"}\n\n',
        '{"label": "BILLING"}',
        '{"label": "billing."}',
        '{"Label": "billing"}',
        '```json\n{"label": "billing"}\n```',
        '~~~\n{"label": "billing"}\n~~~',
        '[{"label": "billing"}]',
        '{"label": ["billing"]}',
        '{"label": "billing", "confidence": 0.9}',
        '{"label": "billing", "label": "Billing"}',
        '"billing"',
        "billing",
        "Billing.",
    ],
)
def test_one_label_is_understood_in_whatever_dress(raw: str) -> None:
    assert parse_answer(SPEC, raw) == "billing"


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        ("", EMPTY),
        (" \n\t ", EMPTY),
        ("``````", EMPTY),
        ('{"label": "bil', CUT_SHORT),
        ('{"label":', CUT_SHORT),
        ('{"label": "billing"', CUT_SHORT),
        ("The label is billing", NOT_JSON),
        ("billing?", NOT_JSON),
        ("billing or shipping", NOT_JSON),
        ('{"label": "billing"} because they were charged', NOT_JSON),
        ("[" * 100_000, NOT_JSON),
        ('{"label": ' + "9" * 5_000 + "}", NOT_JSON),
        ('{"label": "refunds"}', FOREIGN_LABEL),
        ('{"label": "bill"}', FOREIGN_LABEL),
        ('{"label": null}', NO_LABEL),
        ('{"label": 3}', NO_LABEL),
        ('{"category": "billing"}', NO_LABEL),
        ("{}", NO_LABEL),
        ("[]", NO_LABEL),
        ('["billing", "shipping"]', SEVERAL_LABELS),
        ('{"label": ["billing", "shipping"]}', SEVERAL_LABELS),
        ('{"label": "billing", "label": "shipping"}', SEVERAL_LABELS),
    ],
)
def test_anything_else_is_no_answer_and_says_why(raw: str, why: InvalidOutput) -> None:
    assert parse_answer(SPEC, raw) == why


@pytest.mark.parametrize("label", LABELS)
def test_what_is_asked_for_is_understood(label: str) -> None:
    assert parse_answer(SPEC, answer_text(label)) == label


def test_a_label_that_ends_in_punctuation_is_not_cut() -> None:
    spec = ClassificationSpec(labels={"other": "", "other.": ""})
    assert parse_answer(spec, '{"label": "other."}') == "other."
    assert parse_answer(spec, '{"label": "other"}') == "other"


def test_letters_composed_in_another_way_are_the_same_label() -> None:
    spec = ClassificationSpec(labels={"Réclamation": "", "autre": ""})
    assert parse_answer(spec, '{"label": "Re\\u0301clamation"}') == "Réclamation"


@given(st.text(max_size=300))
def test_any_text_gives_a_label_of_the_spec_or_a_reason_in_fixed_words(raw: str) -> None:
    answer = parse_answer(SPEC, raw)
    if isinstance(answer, InvalidOutput):
        assert answer in {EMPTY, CUT_SHORT, NOT_JSON, NO_LABEL, FOREIGN_LABEL, SEVERAL_LABELS}
    else:
        assert answer in LABELS
