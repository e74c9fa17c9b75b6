"""The classification spec: what does not fit together is refused, and all that shapes an answer is in its hash."""

from typing import Any

import pytest
from pydantic import ValidationError

from jobs.spec import ClassificationSpec
from tickets_batch.errors import SettingsError
from tickets_batch.settings import Classification

VALUES: dict[str, Any] = {
    "labels": {"billing": "charges", "shipping": "parcels"},
    "instructions": "Sort.",
    "examples": [{"text": "Charged twice", "label": "billing"}],
    "max_output_tokens": 32,
}


def spec(**changes: Any) -> ClassificationSpec:
    return ClassificationSpec.model_validate(VALUES | changes)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"labels": {"billing": ""}}, "at least 2"),
        ({"labels": {"billing": "", "Billing": ""}}, "differ only in case"),
        ({"labels": {" billing": "", "shipping": ""}}, "white space"),
        ({"labels": {"bil\nling": "", "shipping": ""}}, "control character"),
        ({"labels": {"": "", "shipping": ""}}, "at least 1 character"),
        ({"examples": [{"text": " ", "label": "billing"}]}, "example 1 has no text"),
        ({"examples": [{"text": "x", "label": "refunds"}]}, "'refunds'; labels are billing, shipping"),
        ({"labels": {"x" * 90: "", "y": ""}, "examples": [], "max_output_tokens": 4}, "too few for the label"),
        ({"max_output_tokens": 1}, "greater than or equal to 4"),
    ],
)
def test_what_does_not_fit_together_is_refused_in_words(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        spec(**changes)


def test_from_settings_a_problem_names_its_key() -> None:
    settings = Classification.model_validate({"labels": {"a\x07": "", "b": ""}})
    with pytest.raises(SettingsError, match=r"^classification.*control character"):
        ClassificationSpec.of(settings)


@pytest.mark.parametrize(
    "changes",
    [
        {"labels": {"shipping": "parcels", "billing": "charges"}},  # the order is part of the prompt
        {"labels": {"billing": "charges!", "shipping": "parcels"}},
        {"instructions": "Sort well."},
        {"examples": []},
        {"examples": [{"text": "Charged twice", "label": "shipping"}]},
        {"max_output_tokens": 33},
    ],
)
def test_every_part_is_in_the_hash(changes: dict[str, Any]) -> None:
    assert spec(**changes).hash != spec().hash


def test_the_hash_is_the_same_in_every_process() -> None:
    assert spec().hash == "cfb28633a3165092e22a95e076078adeebf76b94d88c53478981d9552e334bd7"
