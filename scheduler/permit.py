"""The right to have one request in flight: what is asked, what is given, what is refused, and what becomes of it."""

from dataclasses import dataclass
from enum import StrEnum

from scheduler.capacity import NOTHING, Amount


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
    FIRST_TOKEN = "first_token"  # batch: a chat request is waiting for its first token  # noqa: S105
    PAUSED = "paused"  # batch: the engine asked for rest
    TOO_LARGE = "too_large"  # could never fit this pool


class Standing(StrEnum):
    """What a holder learns of its permit."""

    HELD = "held"
    REVOKED = "revoked"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class Ask:
    """One request, in tokens: what the engine must prefill, and the cap on what it may write.

    `expected_ms` is how long a batch request is expected to take, 0 where nobody knows. Of a request that is not
    `streamed` no first token will be seen, so nothing waits for it.
    """

    prompt_tokens: int
    output_tokens: int
    expected_ms: int = 0
    streamed: bool = True

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
class Outlook:
    """What is expected of the chat: by it the ledger keeps room at each ask, between two published limits.

    `high` is what chat holds in its busy moments, `arrivals_milli` its requests in 1,000 s, `request_tokens` what one
    of them holds, `reserve` the least number of slots kept free for it. Batch prompts may be withdrawn from in front of
    a chat request where more than `prefill_ahead_tokens` are still to go at `prefill_rate` tokens/s; 0: unknown.
    While chat waits for a first token, batch may have no more than `prefill_beside_tokens` on their way to theirs.
    `rises` is how far chat may rise from what it holds within each of `headroom.HORIZONS_SECONDS`; empty: not at all.
    """

    high: Amount = NOTHING
    arrivals_milli: int = 0
    request_tokens: int = 0
    reserve: int = 0
    prefill_rate: int = 0
    prefill_ahead_tokens: int = 0
    prefill_beside_tokens: int = 0
    rises: tuple[Amount, ...] = ()


@dataclass(frozen=True, slots=True)
class PublishedLimit:
    """The most that batch may hold now, and the prompt tokens it may have on their way to a first token.

    The ledger gives no more than this, and less where `outlook` says that the chat will need it.
    """

    limit: Amount
    prefill_tokens: int
    outlook: Outlook = Outlook()
