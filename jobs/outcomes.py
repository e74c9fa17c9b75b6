"""What one call to the model showed, and what becomes of its job: two closed sets of values.

An `Attempt` is what was seen on the wire; an `Outcome` is what the store writes for the job.
`jobs.retry.decide` is the only way from the first to the second.
"""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class Symptom(StrEnum):
    """What went wrong with one attempt, as the error table of the design names it."""

    OVERLOADED = "overloaded"  # 429, 503, the engine's queue is full
    TIMED_OUT = "timed_out"  # our own total deadline for one request
    DISCONNECTED = "disconnected"  # connection reset or dropped
    UNREACHABLE = "unreachable"  # connection refused, host unknown: nothing was sent
    SERVER_ERROR = "server_error"  # 5xx other than 503
    INVALID_OUTPUT = "invalid_output"  # cut short, not JSON, label outside the set, empty
    TOO_LONG = "too_long"  # the engine's context is shorter than the prompt
    REFUSED = "refused"  # any other 400, or a content filter
    BLOCKED = "blocked"  # 401, 403, unknown model, schema refused: no job can succeed
    TOO_LARGE = "too_large"  # its tokens could never fit the pool
    WITHDRAWN = "withdrawn"  # pull-back, lost permit
    STOPPING = "stopping"  # the worker is shutting down
    CANCELLED = "cancelled"  # the batch is being cancelled
    DEADLINE = "deadline"  # the batch's deadline has passed


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens as the engine counted them, or our estimate where it did not say."""

    prompt_tokens: int = 0
    completion_tokens: int = 0

    @property
    def total(self) -> int:
        """Prompt and completion together."""
        return self.prompt_tokens + self.completion_tokens


@dataclass(frozen=True, slots=True)
class Attempt:
    """One call to the model for a job; an append-only row.

    `seconds` is the whole call, `ttft_seconds` until the first token (None: there was none). `detail` is bounded and
    never carries ticket text; `raw` is the model's own answer, bounded, None when there was none.
    """

    started_at: datetime
    seconds: float
    pool: str
    model: str
    usage: Usage = Usage()
    ttft_seconds: float | None = None
    symptom: Symptom | None = None
    http_status: int | None = None
    retry_after_seconds: float | None = None
    label: str | None = None
    raw: str | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Succeeded:
    """The model answered with one of the labels."""

    label: str


@dataclass(frozen=True, slots=True)
class Failed:
    """The job ends without a label; `error` begins with a word of the error table, as in `invalid_output: empty`."""

    error: str


@dataclass(frozen=True, slots=True)
class Requeued:
    """The job goes back to `pending`.

    `delay_seconds` is how long it rests; `spends_attempt` counts it against the job's attempts; `is_yield` marks users
    coming first or a shutdown; `truncate` asks for a shortened body from now on; `blocked` names why no job of the
    batch can succeed now. A job that was never called `keeps_place`: it goes back as it was, neither behind nor ahead.
    """

    delay_seconds: float = 0.0
    spends_attempt: bool = False
    is_yield: bool = False
    truncate: bool = False
    blocked: str | None = None
    keeps_place: bool = False


@dataclass(frozen=True, slots=True)
class Expired:
    """The deadline passed before the job was done."""

    reason: str = "deadline"


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The batch was cancelled before the job was done."""


Outcome = Succeeded | Failed | Requeued | Expired | Cancelled
