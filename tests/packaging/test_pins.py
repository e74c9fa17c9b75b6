"""The pinned requirement files are in step with `pyproject.toml`, and hold names, versions and hashes alone."""

from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.support.requirements import (
    DEV,
    RUNTIME,
    SERVER,
    WEIGHTS,
    NotAPin,
    all_groups,
    asked_for,
    canonical,
    is_needed,
    pins,
    read_pins,
)

HASH = "--hash=sha256:" + "0" * 64
ASKED: dict[Path, tuple[tuple[str, ...], tuple[str, ...]]] = {
    RUNTIME: (("embedded", "demo"), ("build",)),
    SERVER: (("flower",), ("build",)),
    DEV: (("embedded", "demo", "flower"), all_groups()),
}


@pytest.mark.parametrize("file", [RUNTIME, SERVER, DEV, WEIGHTS], ids=lambda path: path.name)
def test_every_line_is_a_name_a_version_or_a_hash(file: Path) -> None:
    found = pins(file)
    assert found
    assert [pin.name for pin in found.values() if not pin.hashes] == []
    text = file.read_text(encoding="utf-8")
    assert [word for word in ("://", "git+", "--index", "--extra-index", "--find-links", " @ ") if word in text] == []


@pytest.mark.parametrize(
    "text",
    [
        f"--index-url https://example.org/index\ncelery==5.7.0 \\\n    {HASH}\n",
        f"celery @ https://example.org/celery.zip \\\n    {HASH}\n",
        f"git+https://example.org/celery \\\n    {HASH}\n",
        f"celery>=5.7.0 \\\n    {HASH}\n",
        "celery==5.7.0 \\\n    --hash=md5:00\n",
        "celery==5.7.0 \\\n    --no-binary=celery\n",
    ],
)
def test_anything_else_would_be_found(text: str) -> None:
    with pytest.raises(NotAPin):
        read_pins(text)


@pytest.mark.parametrize("file", [RUNTIME, SERVER, DEV], ids=lambda path: path.name)
def test_everything_asked_for_is_pinned_within_its_range(file: Path) -> None:
    found = pins(file)
    extras, groups = ASKED[file]
    asked = asked_for(extras=extras, groups=groups)
    assert len(asked) > 15
    for requirement in asked:
        pin = found.get(canonical(requirement.name))
        assert pin is not None, f"{file.name} does not pin {requirement.name}: make lock"
        assert requirement.specifier.contains(pin.version), f"{requirement} does not take {pin.version}: make lock"


@pytest.mark.parametrize("file", [RUNTIME, SERVER, DEV], ids=lambda path: path.name)
def test_nothing_is_pinned_for_a_dependency_that_is_gone(file: Path) -> None:
    extras, groups = ASKED[file]
    asked = {canonical(requirement.name) for requirement in asked_for(extras=extras, groups=groups)}
    assert {pin.name for pin in pins(file).values() if pin.via_project} == asked


@pytest.mark.parametrize("file", [RUNTIME, SERVER], ids=lambda path: path.name)
def test_the_pins_are_those_of_development(file: Path) -> None:
    dev = pins(DEV)
    assert {name: pin.version for name, pin in pins(file).items()}.items() <= {
        name: pin.version for name, pin in dev.items()
    }.items()


def test_the_weights_are_pinned_as_asked_for() -> None:
    lines = WEIGHTS.with_suffix(".in").read_text(encoding="utf-8").splitlines()
    asked = [Requirement(line) for line in lines if line and not line.startswith("#")]
    found = pins(WEIGHTS)
    assert {canonical(requirement.name) for requirement in asked} == set(found)
    assert all(requirement.specifier.contains(found[canonical(requirement.name)].version) for requirement in asked)


def test_what_a_pinned_distribution_needs_is_pinned_too() -> None:
    """As far as the distributions are installed here: what this machine does not need it cannot tell."""
    found = pins(DEV)
    extras = {
        canonical(requirement.name): requirement.extras
        for requirement in asked_for(extras=ASKED[DEV][0], groups=all_groups())
    }
    looked_at = 0
    for pin in found.values():
        try:
            needed = [Requirement(text) for text in requires(pin.name) or ()]
        except PackageNotFoundError:
            continue
        looked_at += 1
        for requirement in needed:
            if not is_needed(requirement, extras.get(pin.name, set())):
                continue
            other = found.get(canonical(requirement.name))
            assert other is not None, f"{pin.name} needs {requirement.name}, which is not pinned: make lock"
            assert requirement.specifier.contains(other.version), f"{pin.name} needs {requirement}: make lock"
    assert looked_at > 40
