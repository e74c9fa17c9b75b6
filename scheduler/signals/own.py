"""Our own requests as a source: what they wait at the engine beyond their prefill. Pure, and on any engine.

It can only slow batch down: it says nothing of the chat, so a pool that has nothing else is still blind.
"""

import math
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Sequence
from itertools import islice
from typing import Any

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
        self._seen: deque[FirstToken] = deque()
        self._prompts: list[int] = []  # of all seen, in order of size
        self._telling: list[int] = []  # of those that tell of a rate, in order of size
        self._rates: list[tuple[float, int]] = []  # each with its prompt, in order of the rate
        self._late = 0
        self._last_at = -math.inf
        self._rate: float | None = None

    def take(self, requests: Sequence[FirstToken], now_seconds: float) -> None:
        """First tokens of batch, the oldest first."""
        for request in requests:
            is_late = self._queue_seconds(request) > self._target_seconds / 2
            self._late = self._late + 1 if is_late else 0
            self._last_at = now_seconds
            self._remember(request)
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
        return max(1, self._prompts[0]) if self._prompts else 1

    def _queue_seconds(self, request: FirstToken) -> float:
        return request.seconds - request.prompt_tokens / self._rate if self._rate else 0.0

    def _remember(self, request: FirstToken) -> None:
        if len(self._seen) == WINDOW:
            gone = self._seen.popleft()
            _remove(self._prompts, gone.prompt_tokens)
            if _tells(gone):
                _remove(self._telling, gone.prompt_tokens)
                _remove(self._rates, _rate(gone))
        self._seen.append(request)
        insort(self._prompts, request.prompt_tokens)
        if _tells(request):
            insort(self._telling, request.prompt_tokens)
            insort(self._rates, _rate(request))

    def _measured(self) -> float | None:
        if len(self._seen) < ENOUGH:
            return None
        large = (self._prompts[(len(self._prompts) - 1) // 2] + self._prompts[len(self._prompts) // 2]) / 2
        count = len(self._telling) - bisect_left(self._telling, large)
        above = count - 1 - min(count - 1, int(RATE_QUANTILE * count))
        rates = (rate for rate, prompt_tokens in reversed(self._rates) if prompt_tokens >= large)
        return next(islice(rates, above, None), None)


def _tells(request: FirstToken) -> bool:
    return request.seconds > 0 and request.prompt_tokens > 0


def _rate(request: FirstToken) -> tuple[float, int]:
    return request.prompt_tokens / request.seconds, request.prompt_tokens


def _remove(ordered: list[Any], value: Any) -> None:
    del ordered[bisect_left(ordered, value)]
