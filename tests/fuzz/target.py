"""What a fuzzer is given: a parser, what must hold of it whatever it reads, and where to begin."""

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.fuzz import targets

Judge = Callable[[bytes, Path], None]


@dataclass(frozen=True, slots=True)
class Target:
    """`judge` reads some bytes, with a folder to work in, and raises where what must hold does not.

    `seeds` are where the fuzzer begins, `words` what it likes to put in.
    """

    judge: Judge
    seeds: tuple[bytes, ...]
    words: tuple[str, ...] = ()
    most_bytes: int = 1024


NAMES = tuple(sorted(module.name for module in pkgutil.iter_modules(targets.__path__)))


def target_named(name: str) -> Target:
    """The target of one module; the parsers are imported only here, so that they can be instrumented first."""
    found = importlib.import_module(f"{targets.__name__}.{name}").TARGET
    assert isinstance(found, Target)
    return found
