"""The project's dependencies as `pyproject.toml` asks for them, and as `requirements/*.txt` pins them."""

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

CHECKOUT = Path(__file__).resolve().parents[2]
RUNTIME, SERVER, DEV, WEIGHTS = (
    CHECKOUT / "requirements" / f"{name}.txt" for name in ("runtime", "server", "dev", "weights")
)
_PINNED = re.compile(r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)==(?P<version>[^\s;]+)(\s*;\s*(?P<marker>.+))?")
_HASH = re.compile(r"--hash=sha256:[0-9a-f]{64}")


class NotAPin(Exception):
    """A line that is neither a pinned name nor one of its hashes."""


@dataclass(frozen=True, slots=True)
class Pin:
    """One pinned distribution, under its canonical name."""

    name: str
    version: str
    marker: str | None
    hashes: tuple[str, ...]
    via_project: bool


def read_pins(text: str) -> list[Pin]:
    """The pins of a requirements file. Raises NotAPin for whatever is none."""
    return [_read_pin(block) for block in _blocks(text)]


def pins(file: Path) -> dict[str, Pin]:
    """The pins of a file by canonical name; a name stands in it once."""
    found = read_pins(file.read_text(encoding="utf-8"))
    by_name = {pin.name: pin for pin in found}
    assert len(by_name) == len(found), f"{file.name} pins a name twice"
    return by_name


def asked_for(*, extras: tuple[str, ...], groups: tuple[str, ...]) -> list[Requirement]:
    """What the project, these extras of it and these groups ask for."""
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text(encoding="utf-8"))
    texts = [*project["project"]["dependencies"]]
    texts += [text for extra in extras for text in project["project"]["optional-dependencies"][extra]]
    texts += [text for group in groups for text in _group(project["dependency-groups"], group)]
    return [Requirement(text) for text in texts]


def all_groups() -> tuple[str, ...]:
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text(encoding="utf-8"))
    return tuple(project["dependency-groups"])


def is_needed(requirement: Requirement, extras: set[str]) -> bool:
    """Whether a distribution of which these extras are wanted needs this on the machine at hand."""
    marker = requirement.marker
    return marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *extras))


def canonical(name: str) -> str:
    return str(canonicalize_name(name))


def _group(groups: dict[str, list[Any]], name: str) -> Iterator[str]:
    for entry in groups[name]:
        if isinstance(entry, str):
            yield entry
        else:
            yield from _group(groups, entry["include-group"])


def _blocks(text: str) -> Iterator[list[str]]:
    """Each pin with its hashes, and the comments that say where it comes from."""
    block: list[str] = []
    for line in text.splitlines():
        if line and not line[0].isspace() and not line.startswith("#"):
            if block:
                yield block
            block = []
        if block or not line.startswith("#"):
            block.append(line.strip().removesuffix("\\").strip())
    if block:
        yield block


def _read_pin(block: list[str]) -> Pin:
    head, *rest = [line for line in block if line]
    found = _PINNED.fullmatch(head)
    if found is None:
        raise NotAPin(head)
    comments = [line for line in rest if line.startswith("#")]
    hashes = [line for line in rest if not line.startswith("#")]
    for line in hashes:
        if not _HASH.fullmatch(line):
            raise NotAPin(line)
    return Pin(
        canonical(found["name"]),
        found["version"],
        found["marker"],
        tuple(hashes),
        via_project=any("tickets-batch (pyproject.toml" in line for line in comments),
    )
