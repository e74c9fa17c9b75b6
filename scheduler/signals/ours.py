"""What is ours in the figures of an engine, counted over time. Pure."""

import math

from scheduler.signals.differences import News
from scheduler.snapshot import Snapshot


class OwnFirstTokens:
    """Counts batch's first tokens, and those of them that took longer than the target."""

    def __init__(self, target_seconds: float) -> None:
        self.count = self.late = 0
        self._target_seconds = target_seconds

    def take(self, news: News) -> None:
        """Add what is new."""
        late = sum(request.seconds > self._target_seconds for request in news.batch)
        self.count += news.batch_first_tokens
        self.late += round(late * news.batch_first_tokens / len(news.batch)) if news.batch else 0


class LostLedger:
    """What batch held in a ledger that is no more: in flight still, until its holders have registered with the new one.

    Otherwise a Redis that restarts empty would make chat of it, and ask it back for that.
    """

    def __init__(self, lease_seconds: float) -> None:
        self._lease_seconds = lease_seconds
        self._epoch: str | None = None
        self._slots = 0
        self._lost_slots = 0
        self._until = -math.inf

    def most_slots(self, snapshot: Snapshot, now: float) -> int:
        """What batch holds, with what it held before: the larger."""
        if self._epoch not in (None, snapshot.epoch):
            self._lost_slots, self._until = self._slots, now + self._lease_seconds
        self._epoch, self._slots = snapshot.epoch, snapshot.batch.slots
        return max(self._slots, self._lost_slots if now < self._until else 0)
