"""What batch got done in a stretch of the night, and what the chat left it: pure."""

from dataclasses import dataclass
from datetime import datetime

from scheduler.capacity import Amount


@dataclass(frozen=True, slots=True)
class Observation:
    """The `seconds` before `at` in one pool, or in all pools of a batch together.

    `tokens` are those of the jobs that ended in it, prompt and answer, whichever batch they were of; a stretch in which
    nothing could be done (paused, blocked, no job left) is no observation. `chat` and `held` are what interactive and
    batch had in flight, `limit` is what batch might hold; `is_open`: the hours let batch into the shared part. Raises
    ValueError for a time without a zone or a stretch of no length.
    """

    at: datetime
    seconds: float
    tokens: int
    chat: Amount
    held: Amount
    limit: Amount
    is_open: bool = True

    def __post_init__(self) -> None:
        if self.at.tzinfo is None:
            raise ValueError("an observation needs a time with a zone")
        if self.seconds <= 0 or self.tokens < 0:
            raise ValueError("an observation needs a length above zero, and cannot have undone tokens")
