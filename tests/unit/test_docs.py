"""What the pages show can be used as it stands."""

import re
from pathlib import Path

import pytest

from scheduler.limit import Rule
from scheduler.pool_reading import Condition
from tickets_batch.settings import load

CHECKOUT = Path(__file__).resolve().parents[2]
PAGES = [CHECKOUT / "README.md", *sorted((CHECKOUT / "docs").glob("*.md"))]
BLOCKS = [
    pytest.param(block, id=f"{page.name}-{number}")
    for page in PAGES
    for number, block in enumerate(re.findall(r"^```toml\n(.*?)^```", page.read_text(encoding="utf-8"), re.M | re.S))
]


@pytest.mark.parametrize("block", BLOCKS)
def test_settings_in_the_pages_are_accepted(block: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TICKETS_BATCH_CONFIG", raising=False)
    file = tmp_path / "tickets-batch.toml"
    file.write_text(block, encoding="utf-8")
    assert load(file).model_fields_set


def test_there_are_such_settings() -> None:
    assert len(BLOCKS) >= 3


def test_every_condition_and_every_rule_is_explained() -> None:
    page = (CHECKOUT / "docs" / "admission.md").read_text(encoding="utf-8")
    explained = set(re.findall(r"^\| `(\w+)` \|", page, re.M))
    assert explained == {*Condition, *Rule, "paused"}
