"""What every form of a source gives."""

from collections.abc import Iterator
from typing import Protocol

from jobs.intake.reading import Record
from jobs.ticket import Rejection


class Rows(Protocol):
    """The records of one source, as often as asked for; `notes` are those of the latest time."""

    @property
    def kind(self) -> str: ...
    @property
    def notes(self) -> tuple[str, ...]: ...

    def __iter__(self) -> Iterator[Record | Rejection]: ...
