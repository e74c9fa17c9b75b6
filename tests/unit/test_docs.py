"""What the pages show can be used as it stands, and what they take from the code is as the code has it."""

import re
from pathlib import Path

import pytest

from tests.docs.named import FENCED, PAGES, shown_lines, spans, text, written
from tests.docs.pages import CHECKOUT, MADE, as_generated
from tests.docs.settings_table import EVERYDAY, rows
from tickets_batch.settings import load
from tickets_batch.settings.model import PREFIX

BLOCKS = [
    pytest.param(block, id=f"{page.name}-{number}")
    for page in PAGES
    for number, (language, block) in enumerate(FENCED.findall(page.read_text(encoding="utf-8")))
    if language == "toml"
]
FOLDERS = "tickets_batch|jobs|scheduler|workers|gateway|migrations|deploy|docs|tests"
SECTIONS = "source|sink|classification|pool|gateway|scheduler|alert|worker"


@pytest.mark.parametrize("block", BLOCKS)
def test_settings_in_the_pages_are_accepted(block: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TICKETS_BATCH_CONFIG", raising=False)
    file = tmp_path / "tickets-batch.toml"
    file.write_text(block, encoding="utf-8")
    assert load(file).model_fields_set


def test_there_are_such_settings() -> None:
    assert len(BLOCKS) >= 3


@pytest.mark.parametrize("page", MADE)
def test_what_is_generated_is_up_to_date(page: str) -> None:
    assert text(page) == as_generated(page, text(page)), f"{page} is not what the code says: make docs"


def test_each_setting_stands_in_one_place() -> None:
    named = [(row.key, row.kind) for row in rows()]
    assert len(named) == len(set(named)) > 60
    for everyday in EVERYDAY:
        assert any(row.is_everyday and row.key.startswith(everyday) for row in rows()), everyday


def test_settings_that_the_text_names_exist() -> None:
    known = {row.key.removesuffix(".") for row in rows()}
    tables = {key.rpartition(".")[0] for key in known} | {"classification.examples", "pool.protected"}
    dotted = {span for span in spans(written()) if re.fullmatch(rf"({SECTIONS})\.[a-z_.]+", span)}
    assert len(dotted) > 10
    assert dotted <= known | tables
    variables = set(re.findall(rf"{PREFIX}(\w+)", written()))
    assert {name.lower().replace("__", ".") for name in variables} <= known
    assert len(variables) >= 3


def test_every_link_leads_somewhere() -> None:
    for page in PAGES:
        for link, anchor in re.findall(r"\]\(([^)#:]*)(?:#([^)]*))?\)", page.read_text(encoding="utf-8")):
            target = page.parent / link if link else page
            assert target.exists(), f"{page.name}: {link}"
            if anchor:
                titles = re.findall(r"^#+ (.*)", target.read_text(encoding="utf-8"), re.M)
                assert anchor in {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


def test_the_picture_is_small() -> None:
    assert (CHECKOUT / "docs" / "report.png").stat().st_size < 150_000


def test_every_page_is_reached_from_the_readme() -> None:
    linked = set(re.findall(r"\]\((docs/\w+\.md)\)", text("README.md")))
    assert linked == {path.relative_to(CHECKOUT).as_posix() for path in PAGES} - {"README.md", "docs/PLAN.md"}


def test_files_that_the_text_names_exist() -> None:
    named = {span for span in spans(written()) if re.fullmatch(rf"({FOLDERS})/[\w./-]+|[\w-]+\.(yml|md)", span)}
    assert len(named) > 5
    assert [name for name in named if not (CHECKOUT / name).exists()] == []


def test_verbs_of_make_that_the_pages_name_exist() -> None:
    known = set(re.findall(r"^([a-z-]+):.*## ", text("Makefile"), re.M))
    asked = [*spans(written()), *shown_lines(written())]
    named = {word for line in asked for word in re.findall(r"^make ([a-z-]+)", line.strip())}
    assert named
    assert named <= known
