"""How many requests of a measurement may be in the engine, now and a moment ago. Pure."""

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

KEPT_SECONDS = 10.0


class Ours:
    """Counts the requests under way. One that was withdrawn may stay in the engine for a while after it has ended."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.count = 0
        self._monotonic = monotonic
        self._history: deque[tuple[float, int]] = deque([(monotonic(), 0)])

    @contextmanager
    def one(self) -> Iterator[None]:
        """One request, from before it is sent until after its end."""
        self._change(1)
        try:
            yield
        finally:
            self._change(-1)

    def most_since(self, moment: float) -> int:
        """The most that were under way at once from `moment` (monotonic seconds) on."""
        most = self.count
        for at, count in reversed(self._history):
            most = max(most, count)
            if at <= moment:
                break
        return most

    def _change(self, by: int) -> None:
        now = self._monotonic()
        self.count += by
        self._history.append((now, self.count))
        while len(self._history) > 1 and self._history[1][0] < now - KEPT_SECONDS:
            self._history.popleft()
