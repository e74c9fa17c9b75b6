"""How long the chat waits for its first token, of late: the ledger remembers the last requests, but not when they were.

Whoever looks again and again knows: what is new since the look before is of now.
"""

from collections import deque
from dataclasses import dataclass
from itertools import islice

from scheduler.permit import Kind
from scheduler.pool_reading import quantile
from scheduler.snapshot import Snapshot

SPAN_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Heard:
    """Half of `count` chat requests had their first token within `p50_seconds`, 19 of 20 within `p95_seconds`.

    They are of the last minute; or, if not `is_of_late`, of some time before the first look. Without any, nothing has
    been heard for at least `silent_seconds`.
    """

    count: int = 0
    p50_seconds: float | None = None
    p95_seconds: float | None = None
    is_of_late: bool = True
    silent_seconds: float = 0.0


class FirstTokens:
    """Those of one pool's chat. Times are seconds on any one clock that does not go back."""

    def __init__(self) -> None:
        self._known: Snapshot | None = None
        self._before: tuple[float, ...] = ()
        self._heard_at = 0.0  # the last one, or else the first look
        self._late: deque[tuple[float, float]] = deque()

    def add(self, at: float, snapshot: Snapshot) -> None:
        """Take note of a look at the ledger."""
        known, self._known = self._known, snapshot
        if known is None:
            self._heard_at = at
            self._before = _of_chat(snapshot, len(snapshot.recent))
            return
        grown = snapshot.first_tokens - known.first_tokens
        new = _of_chat(snapshot, grown if grown >= 0 else snapshot.first_tokens)  # a new ledger counts from zero
        if new:
            self._before, self._heard_at = (), at
            self._late.extend((at, seconds) for seconds in new)

    def heard(self, at: float) -> Heard:
        """What is known at this time."""
        while self._late and self._late[0][0] < at - SPAN_SECONDS:
            self._late.popleft()
        silent_seconds = at - self._heard_at if self._known is not None else 0.0
        late = [seconds for _, seconds in self._late]
        waited = late or (self._before if silent_seconds < SPAN_SECONDS else ())
        return Heard(len(waited), quantile(waited, 0.5), quantile(waited, 0.95), bool(late), silent_seconds)


def _of_chat(snapshot: Snapshot, newest: int) -> tuple[float, ...]:
    return tuple(first.seconds for first in islice(snapshot.recent, newest) if first.kind is Kind.INTERACTIVE)
