"""One thing that `doctor` tried."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeVar

from tickets_batch.errors import UserError

T = TypeVar("T")
Level = Literal["ok", "warning", "problem"]


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was tried, and what it showed: a problem fails tonight, a warning is something to know."""

    about: str
    level: Level
    words: str


def tried(about: str, attempt: Callable[[T], Check | str], subject: T) -> Check:
    """What an attempt showed; its UserError is the problem."""
    try:
        found = attempt(subject)
    except UserError as error:
        return Check(about, "problem", " ".join(str(error).splitlines()))
    return found if isinstance(found, Check) else Check(about, "ok", found)
