"""What differs between two specs, in words."""

from typing import Any

import pytest

from jobs.spec_difference import differences

SPEC: dict[str, Any] = {
    "labels": {"billing": "charges", "shipping": "delivery"},
    "instructions": "You sort tickets.",
    "examples": [],
    "max_output_tokens": 32,
}


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({}, []),
        ({"instructions": "Sort!"}, ["other instructions"]),
        ({"examples": [{"text": "x", "label": "billing"}]}, ["other examples"]),
        ({"max_output_tokens": 64}, ["another max_output_tokens (32, now 64)"]),
        ({"labels": {"shipping": "delivery", "billing": "charges"}}, ["the labels in another order"]),
        ({"labels": {"billing": "charges", "shipping": "parcels"}}, ["other words on shipping"]),
        ({"labels": {"billing": "charges"}}, ["other labels (shipping gone)"]),
        (
            {"labels": {"billing": "invoices", "yes": "", "no": ""}},
            ["other labels (shipping gone; yes, no new)", "other words on billing"],
        ),
        (
            {"labels": {f"label-{n}": "" for n in range(9)}, "instructions": ""},
            [
                "other labels (billing, shipping gone; label-0, label-1, label-2, label-3, label-4, ... new)",
                "other instructions",
            ],
        ),
    ],
)
def test_what_differs_is_named(changed: dict[str, Any], said: list[str]) -> None:
    assert list(differences(SPEC, SPEC | changed)) == said
