"""Numbers with their nouns, and that there is one place where a plural is made."""

import re
from pathlib import Path

import pytest

from tickets_batch.words import counted

CHECKOUT = Path(__file__).resolve().parents[2]
PACKAGES = ("tickets_batch", "jobs", "scheduler", "workers", "gateway")
# A whole number that may be 1 before a plural; one with a format of its own, such as .1f, is no count,
# and a constant is known not to be 1.
COUNT_BEFORE_PLURAL = re.compile(r"\{[^{}:A-Z]+(?::,)?\} (?:slot|ticket|row|job|request|column|worker|yield|batche)s\b")


@pytest.mark.parametrize(
    ("count", "noun", "said"),
    [
        (0, "slot", "0 slots"),
        (1, "slot", "1 slot"),
        (3080, "ticket", "3,080 tickets"),
        (1, "batch", "1 batch"),
        (2, "batch", "2 batches"),
        (2, "person", "2 people"),
        (2, "other minute", "2 other minutes"),
    ],
)
def test_a_number_with_its_noun(count: int, noun: str, said: str) -> None:
    assert counted(count, noun) == said


def test_nobody_else_makes_plurals() -> None:
    found = [
        f"{path.relative_to(CHECKOUT)}: {line.strip()}"
        for package in PACKAGES
        for path in sorted((CHECKOUT / package).rglob("*.py"))
        for line in path.read_text(encoding="utf-8").splitlines()
        if path.name != "words.py" and (COUNT_BEFORE_PLURAL.search(line) or "else 's'}" in line)
    ]
    assert found == []
