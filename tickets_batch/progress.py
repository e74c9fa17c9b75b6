"""How fast something comes along, and durations as a person writes them."""

from collections import deque

WINDOW_SECONDS = 30.0


class Rate:
    """Tickets per second over the last half minute, from what was read at which time (monotonic seconds)."""

    def __init__(self, window_seconds: float = WINDOW_SECONDS) -> None:
        self._window_seconds = window_seconds
        self._seen: deque[tuple[float, int]] = deque()

    def add(self, at: float, done: int) -> None:
        """Take note that `done` tickets were done at `at`; fewer than before starts the measurement anew."""
        if self._seen and done < self._seen[-1][1]:
            self._seen.clear()
        self._seen.append((at, done))
        while len(self._seen) > 2 and self._seen[1][0] <= at - self._window_seconds:
            self._seen.popleft()

    @property
    def per_second(self) -> float | None:
        """The rate, None until something was done within the window."""
        if len(self._seen) < 2:
            return None
        (began, first), (ended, last) = self._seen[0], self._seen[-1]
        return (last - first) / (ended - began) if last > first and ended > began else None


def duration(seconds: float) -> str:
    """Hours, minutes and seconds as a person writes them: `45 s`, `12 min`, `3 h 20 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes = round(whole / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
