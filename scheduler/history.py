"""What chat has held in the last minutes, and how far it rose from there: pure."""

from bisect import bisect_left
from collections import deque
from collections.abc import Iterator, Sequence

from scheduler.capacity import NOTHING, Amount
from scheduler.headroom import HORIZONS_SECONDS

KEEP_SECONDS = 120.0  # busy moments are looked for in this time
HIGH_QUANTILE = 0.9  # of the readings, what chat held in its busy moments
RISE_QUANTILE = 0.4  # of the rises: room for the chat's next wave where it is likelier than not to come
ALIKE_SHARE = 0.2  # readings within this of what chat holds now tell of what comes next, and within one slot
ENOUGH = 10  # such readings, else all of them count


class ChatHistory:
    """Readings of what chat holds, each at its second on any one clock that does not go back."""

    def __init__(self) -> None:
        self._seconds: deque[float] = deque()
        self._amounts: deque[Amount] = deque()

    def add(self, seconds: float, amount: Amount) -> None:
        """Take in a reading, and forget those of KEEP_SECONDS ago."""
        self._seconds.append(seconds)
        self._amounts.append(amount)
        while self._seconds[0] < seconds - KEEP_SECONDS:
            self._seconds.popleft()
            self._amounts.popleft()

    def high(self) -> Amount:
        """What chat held in its busy moments, on each axis; nothing where there are no readings."""
        return Amount(
            _quantile([amount.slots for amount in self._amounts], HIGH_QUANTILE),
            _quantile([amount.tokens for amount in self._amounts], HIGH_QUANTILE),
        )

    def rises(self, now: Amount) -> tuple[Amount, ...]:
        """How far chat rose within each of HORIZONS_SECONDS, at most moments when it held about what it holds now.

        A horizon that is longer than the readings reach tells what the one before it does.
        """
        seconds = list(self._seconds)
        slots, tokens = [amount.slots for amount in self._amounts], [amount.tokens for amount in self._amounts]
        near = max(1, round(now.slots * ALIKE_SHARE))
        is_alike = [abs(count - now.slots) <= near for count in slots]
        found: list[Amount] = []
        for horizon_seconds in HORIZONS_SECONDS:
            ends = _window_ends(seconds, horizon_seconds)
            if not ends:
                found.append(found[-1] if found else NOTHING)
                continue
            rise = Amount(_rise(slots, ends, is_alike), _rise(tokens, ends, is_alike))
            found.append(rise.at_least(found[-1] if found else NOTHING))  # the moments that count are not the same ones
        return tuple(found)


def _window_ends(seconds: Sequence[float], horizon_seconds: float) -> list[int]:
    """For each reading whose horizon the readings reach: the index of the first one at or beyond that horizon."""
    return [
        end for moment in seconds if (end := bisect_left(seconds, moment + horizon_seconds)) < len(seconds)
    ]  # the moments are in order, so those that reach far enough come first


def _rise(values: Sequence[int], ends: Sequence[int], is_alike: Sequence[bool]) -> int:
    rises = [most - value for most, value in zip(_window_maxima(values, ends), values, strict=False)]
    alike = [rise for rise, counts in zip(rises, is_alike, strict=False) if counts]
    return _quantile(alike if len(alike) >= ENOUGH else rises, RISE_QUANTILE)


def _window_maxima(values: Sequence[int], ends: Sequence[int]) -> Iterator[int]:
    """The largest of `values[start..ends[start]]` for each start: a queue of what may yet be the largest."""
    candidates: deque[int] = deque()
    reached = -1
    for start, end in enumerate(ends):
        while reached < end:
            reached += 1
            while candidates and values[candidates[-1]] <= values[reached]:
                candidates.pop()
            candidates.append(reached)
        while candidates[0] < start:
            candidates.popleft()
        yield values[candidates[0]]


def _quantile(values: Sequence[int], share: float) -> int:
    return sorted(values)[int(share * (len(values) - 1))] if values else 0
