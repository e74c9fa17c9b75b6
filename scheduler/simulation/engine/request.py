"""What is asked of the engine, and what it reports back. All times are seconds on the engine's clock."""

from dataclasses import dataclass
from typing import Literal, NamedTuple


class Stall(NamedTuple):
    """The engine falls silent after `after_tokens` tokens, holding the slot, and goes on `seconds` later."""

    after_tokens: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Request:
    """One generation: `klass` only tags it for statistics, `prefix` names the text its prompt begins with."""

    id: str
    prompt_tokens: int
    output_tokens: int
    priority: int = 0
    klass: str = "batch"
    prefix: str | None = None
    stall: Stall | None = None

    def __post_init__(self) -> None:
        if self.prompt_tokens < 1 or self.output_tokens < 1:
            raise ValueError(f"request {self.id}: prompt_tokens and output_tokens must be at least 1")


# Events are named tuples because the core makes millions of them: a frozen dataclass costs three times as much.


class FirstToken(NamedTuple):
    request: Request
    at: float
    arrived_at: float
    started_at: float
    cached_tokens: int


class Token(NamedTuple):
    """Token number `number` (from 2: the first is `FirstToken`); only made when the core streams tokens."""

    request: Request
    at: float
    number: int


class Finished(NamedTuple):
    request: Request
    at: float
    arrived_at: float
    started_at: float
    first_token_at: float


class Aborted(NamedTuple):
    """The request has left the engine unfinished; the token counts are what was computed in vain."""

    request: Request
    at: float
    arrived_at: float
    started_at: float | None
    first_token_at: float | None
    prefilled_tokens: int
    output_tokens: int


class Rejected(NamedTuple):
    request: Request
    at: float
    reason: Literal["queue_full", "too_long"]


Event = FirstToken | Token | Finished | Aborted
