"""What the pages show can be used as it stands."""

import re
from pathlib import Path

import pytest

from gateway.metrics import Metrics
from jobs.outcomes import Symptom
from jobs.states import BatchState, JobState
from scheduler.limit import Rule
from scheduler.pool_reading import Condition
from tickets_batch.cli.frame import VERBS
from tickets_batch.settings import Gateway, load

CHECKOUT = Path(__file__).resolve().parents[2]
PAGES = [CHECKOUT / "README.md", *sorted((CHECKOUT / "docs").glob("*.md"))]
BLOCKS = [
    pytest.param(block, id=f"{page.name}-{number}")
    for page in PAGES
    for number, block in enumerate(re.findall(r"^```toml\n(.*?)^```", page.read_text(encoding="utf-8"), re.M | re.S))
]


def text(page: str) -> str:
    return (CHECKOUT / page).read_text(encoding="utf-8")


@pytest.mark.parametrize("block", BLOCKS)
def test_settings_in_the_pages_are_accepted(block: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TICKETS_BATCH_CONFIG", raising=False)
    file = tmp_path / "tickets-batch.toml"
    file.write_text(block, encoding="utf-8")
    assert load(file).model_fields_set


def test_there_are_such_settings() -> None:
    assert len(BLOCKS) >= 3


def test_every_condition_and_every_rule_is_explained() -> None:
    page = text("docs/admission.md")
    explained = set(re.findall(r"^\| `(\w+)` \|", page, re.M))
    assert explained == {*Condition, *Rule, "paused"}


def test_every_state_and_every_error_is_explained() -> None:
    tickets, batches, errors = re.split(r"^## A batch|^## What an error means", text("docs/states.md"), flags=re.M)
    for part, words in ((tickets, JobState), (batches, BatchState), (errors, Symptom)):
        named = set(re.findall(r"`(\w+)`", part))
        assert named >= {str(word) for word in words}


def test_every_verb_is_in_the_readme() -> None:
    verbs = text("README.md").partition("## Commands")[2].partition("\n## ")[0]
    assert set(VERBS) <= set(re.findall(r"`(\w+)[^`]*`", verbs))


def test_every_link_leads_somewhere() -> None:
    for page in PAGES:
        links = re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8"))
        assert [link for link in links if not (page.parent / link).exists()] == []


def test_metrics_and_keys_of_the_gateway_that_are_named_exist() -> None:
    pages = text("README.md") + text("docs/operations.md")
    kept = {name for family in Metrics().registry.collect() for name in (family.name, f"{family.name}_total")}
    named = {f"tickets_batch_gateway_{name}" for name in re.findall(r"`(?:tickets_batch_gateway|\.\.\.)_(\w+)", pages)}
    assert named
    assert named <= kept
    assert set(re.findall(r"`gateway\.(\w+)`", pages)) <= set(Gateway.model_fields)
