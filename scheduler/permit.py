"""The right to have one request in flight: what is asked, what is given, what is refused, and what becomes of it."""

from dataclasses import dataclass
from enum import StrEnum

from scheduler.capacity import Amount


class Kind(StrEnum):
    """The class of work that a request belongs to."""

    INTERACTIVE = "interactive"
    BATCH = "batch"


class Reason(StrEnum):
    """Why a permit was refused."""

    CAPACITY = "capacity"  # interactive: its own use leaves no room beside batch's protected share
    LIMIT = "limit"  # batch: over the limit now in force
    PROTECTED = "protected"  # batch: what is left belongs to interactive, or is in use
    PREFILL = "prefill"  # batch: enough prompt tokens are already on their way to a first token
    PAUSED = "paused"  # batch: the engine asked for rest
    TOO_LARGE = "too_large"  # could never fit this pool


class Standing(StrEnum):
    """What a holder learns of its permit."""

    HELD = "held"
    REVOKED = "revoked"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class Ask:
    """One request, in tokens: what the engine must prefill, and the cap on what it may write."""

    prompt_tokens: int
    output_tokens: int

    @property
    def amount(self) -> Amount:
        """One slot and all its tokens."""
        return Amount(1, self.prompt_tokens + self.output_tokens)


@dataclass(frozen=True, slots=True)
class Permit:
    """The right to have one request in flight; `epoch` names the ledger that gave it."""

    token: str
    kind: Kind
    ask: Ask
    epoch: str = ""


@dataclass(frozen=True, slots=True)
class Refusal:
    """No permit now; `retry_after_seconds` is given where the pool itself asked for rest."""

    reason: Reason
    retry_after_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class PublishedLimit:
    """How much batch may hold now, and how many prompt tokens it may have on their way to a first token."""

    limit: Amount
    prefill_tokens: int
