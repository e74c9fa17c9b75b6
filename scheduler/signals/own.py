"""Our own requests as a source: what they wait at the engine beyond their prefill. Pure, and on any engine.

It can only slow batch down: it says nothing of the chat, so a pool that has nothing else is still blind.
"""

import math
from collections import deque
from collections.abc import Sequence
from statistics import median

from scheduler.snapshot import FirstToken

WINDOW = (
    1024  # long, and the quantile high: one request in ten that did not queue keeps the rate for minutes of congestion
)
ENOUGH = 8  # requests by which the prefill rate is believed
RATE_QUANTILE = 0.9
LATE_IN_A_ROW = 3
STALE_SECONDS = 3.0


class OwnRequests:
    """Learns what the engine prefills in a second, and by it sees our requests queue there."""

    def __init__(self, target_seconds: float) -> None:
        self._target_seconds = target_seconds
        self._seen: deque[FirstToken] = deque(maxlen=WINDOW)
        self._late = 0
        self._last_at = -math.inf
        self._rate: float | None = None

    def take(self, requests: Sequence[FirstToken], now_seconds: float) -> None:
        """First tokens of batch, the oldest first."""
        for request in requests:
            is_late = self._queue_seconds(request) > self._target_seconds / 2
            self._late = self._late + 1 if is_late else 0
            self._last_at = now_seconds
            self._seen.append(request)
        if requests:
            self._rate = self._measured()

    def is_congested(self, now_seconds: float) -> bool:
        """The last few requests in a row all queued for more than half the target."""
        return self._late >= LATE_IN_A_ROW and now_seconds - self._last_at < STALE_SECONDS

    @property
    def prefill_rate(self) -> float | None:
        """Tokens/s, None until enough was seen: an upper quantile of what the larger half of the prompts came to.

        The time includes the step under way and the way there, so it is rather too low than too high.
        """
        return self._rate

    @property
    def smallest_prompt(self) -> int:
        """The fewest prompt tokens among the requests seen, at least 1."""
        return max(1, min((request.prompt_tokens for request in self._seen), default=1))

    def _queue_seconds(self, request: FirstToken) -> float:
        return request.seconds - request.prompt_tokens / self._rate if self._rate else 0.0

    def _measured(self) -> float | None:
        if len(self._seen) < ENOUGH:
            return None
        large = median(request.prompt_tokens for request in self._seen)
        rates = sorted(
            request.prompt_tokens / request.seconds
            for request in self._seen
            if request.prompt_tokens >= large and request.seconds > 0 and request.prompt_tokens > 0
        )
        return rates[min(len(rates) - 1, int(RATE_QUANTILE * len(rates)))] if rates else None
