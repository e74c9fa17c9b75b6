"""Our packages are plain top-level ones: no other installed distribution may own one of their names."""

import sys
import tomllib
from importlib.metadata import Distribution, distributions
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
OURS = "tickets-batch"


def our_names() -> set[str]:
    """The top-level names in the wheel."""
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text(encoding="utf-8"))
    return set(project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"])


def top_level_names(distribution: Distribution) -> set[str]:
    """The names that a distribution puts beside ours: of packages, modules and extensions."""
    listed = (distribution.read_text("top_level.txt") or "").split()
    return {*listed, *(file.parts[0].partition(".")[0] for file in distribution.files or ())}


def other_owners(folders: list[str]) -> dict[str, set[str]]:
    """Which distributions in these folders, beside our own, own which of our names."""
    found = {
        distribution.name: our_names() & top_level_names(distribution)
        for distribution in distributions(path=folders)
        if distribution.name != OURS
    }
    return {name: taken for name, taken in found.items() if taken}


def test_nobody_else_owns_our_names() -> None:
    assert {"tickets_batch", "jobs", "scheduler", "workers", "gateway", "migrations"} == our_names()
    installed = {distribution.name for distribution in distributions(path=sys.path)}
    assert {"celery", "pytest"} <= installed, "not the environment that the product runs in"
    assert other_owners(sys.path) == {}


@pytest.mark.parametrize("file", ["scheduler/__init__.py", "scheduler.py", "scheduler.cpython-311-x86_64-linux-gnu.so"])
def test_one_that_did_would_be_found(tmp_path: Path, file: str) -> None:
    about = tmp_path / "other_scheduler-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.4\nName: other-scheduler\nVersion: 1.0\n")
    (about / "RECORD").write_text(f"{file},,\n{about.name}/METADATA,,\n{about.name}/RECORD,,\n")
    assert other_owners([str(tmp_path)]) == {"other-scheduler": {"scheduler"}}
