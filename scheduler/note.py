"""What the scheduler says of the limit that it has published, as readers find it in the ledger."""

from typing import Self

from pydantic import BaseModel, ConfigDict, ValidationError


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")  # an older reader leaves out what a newer scheduler adds


class NotedAmount(_Part):
    """So much of a pool, on both axes."""

    slots: int = 0
    tokens: int = 0


class NotedSource(_Part):
    """A source of what is known of the chat, and how old its last sign of life was."""

    name: str
    age_seconds: float | None = None
    is_fresh: bool = False


class NotedLoad(_Part):
    """The reading of the chat behind the limit."""

    in_flight: NotedAmount = NotedAmount()
    waiting: int = 0
    oldest_waiting_seconds: float = 0.0
    ttft_seconds: float | None = None
    sources: tuple[NotedSource, ...] = ()
    is_blind: bool = False
    is_congested: bool = False


class Note(_Part):
    """Which rule binds, in a word and in a sentence, and on what reading; `at` is in seconds since 1970."""

    rule: str
    why: str = ""
    load: NotedLoad = NotedLoad()
    at: float

    @classmethod
    def read(cls, text: str) -> Self | None:
        """The note in `text`; None where there is none, or one that this version cannot read."""
        if not text:
            return None
        try:
            return cls.model_validate_json(text)
        except ValidationError:
            return None
