"""The tickets that a measurement sends, one after the other and over again."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from jobs.answer import parse_answer
from jobs.prompt import build_messages, response_format
from jobs.spec import ClassificationSpec
from workers.client import Messages
from workers.verdict import Parse


@dataclass(frozen=True, slots=True)
class Texts:
    """Subjects and bodies with the spec by which they are asked; `described` says in words which tickets they are.

    Raises ValueError without any.
    """

    spec: ClassificationSpec
    tickets: Sequence[tuple[str, str]]
    described: str

    def __post_init__(self) -> None:
        if not self.tickets:
            raise ValueError("a measurement needs a ticket")

    def messages(self, number: int) -> Messages:
        """The request of the ticket with this number, from 0.

        When all have been sent, the next round's subjects begin with its number: what an engine keeps of a prompt must
        not make the same ticket cheaper the second time.
        """
        rounds, place = divmod(number, len(self.tickets))
        subject, body = self.tickets[place]
        return build_messages(self.spec, f"({rounds}) {subject}" if rounds else subject, body)

    @property
    def response_format(self) -> Mapping[str, Any]:
        """The schema of an answer."""
        return response_format(self.spec)

    @property
    def parse(self) -> Parse:
        """How an answer is read."""
        return partial(parse_answer, self.spec)
