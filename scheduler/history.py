"""What chat has held in the last minutes, and how far it rose from there: pure.

It is asked twice a second all night, so what it tells is kept in order as readings come and go.
"""

from bisect import bisect_left, insort
from collections import defaultdict, deque
from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

from scheduler.capacity import NOTHING, Amount
from scheduler.headroom import HORIZONS_SECONDS

KEEP_SECONDS = 120.0  # busy moments are looked for in this time
HIGH_QUANTILE = 0.9  # of the readings, what chat held in its busy moments
RISE_QUANTILE = 0.3  # of the rises: room for the chat's next wave where at seven moments of ten it came
ALIKE_SHARE = 0.2  # readings within this of what chat holds now tell of what comes next, and within one slot
ENOUGH = 10  # such readings, else all of them count


class _Reading(NamedTuple):
    number: int
    seconds: float
    slots: int
    tokens: int


class ChatHistory:
    """Readings of what chat holds, each at its second on any one clock that does not go back."""

    def __init__(self) -> None:
        self._count = 0
        self._readings: deque[_Reading] = deque()
        self._slots: list[int] = []  # of the readings, in order of size
        self._tokens: list[int] = []
        self._horizons = [_Horizon(seconds) for seconds in HORIZONS_SECONDS]

    def add(self, seconds: float, amount: Amount) -> None:
        """Take in a reading, and forget those of KEEP_SECONDS ago."""
        reading = _Reading(self._count, seconds, amount.slots, amount.tokens)
        self._count += 1
        self._readings.append(reading)
        insort(self._slots, reading.slots)
        insort(self._tokens, reading.tokens)
        while self._readings[0].seconds < seconds - KEEP_SECONDS:
            gone = self._readings.popleft()
            _remove(self._slots, gone.slots)
            _remove(self._tokens, gone.tokens)
            for horizon in self._horizons:
                horizon.forget()
        for horizon in self._horizons:
            horizon.add(reading)

    def high(self) -> Amount:
        """What chat held in its busy moments, on each axis; nothing where there are no readings."""
        return Amount(_quantile(self._slots, HIGH_QUANTILE), _quantile(self._tokens, HIGH_QUANTILE))

    def rises(self, now: Amount) -> tuple[Amount, ...]:
        """How far chat rose within each of HORIZONS_SECONDS, at most moments when it held about what it holds now.

        A horizon that is longer than the readings reach tells what the one before it does.
        """
        near = max(1, round(now.slots * ALIKE_SHARE))
        alike = range(now.slots - near, now.slots + near + 1)
        found: list[Amount] = []
        for horizon in self._horizons:
            before = found[-1] if found else NOTHING
            rise = horizon.rise(alike)
            found.append(before if rise is None else rise.at_least(before))  # not the same moments count for each
        return tuple(found)


class _Horizon:
    """How far chat rose within so many seconds from each reading that this much is known of."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._open: deque[_Reading] = deque()  # the later readings do not reach so far yet
        self._most_slots, self._most_tokens = _Most(), _Most()
        self._rises: deque[tuple[int, Amount]] = deque()  # slots held at first, and the rise
        self._all = _Rises()
        self._by_slots: defaultdict[int, _Rises] = defaultdict(_Rises)

    def add(self, reading: _Reading) -> None:
        """It is the end for those from which it is the first so far away."""
        self._open.append(reading)
        self._most_slots.add(reading.number, reading.slots)
        self._most_tokens.add(reading.number, reading.tokens)
        while reading.seconds >= self._open[0].seconds + self._seconds:
            start = self._open.popleft()
            rise = Amount(
                self._most_slots.since(start.number) - start.slots, self._most_tokens.since(start.number) - start.tokens
            )
            self._rises.append((start.slots, rise))
            self._all.add(rise)
            self._by_slots[start.slots].add(rise)

    def forget(self) -> None:
        """The oldest reading no longer counts."""
        if self._rises:
            slots, rise = self._rises.popleft()
            self._all.remove(rise)
            self._by_slots[slots].remove(rise)
            if not self._by_slots[slots].slots:
                del self._by_slots[slots]
        else:
            self._open.popleft()

    def rise(self, alike: range) -> Amount | None:
        """How far it rose at most moments when chat held so many slots; None where the readings do not reach."""
        if not self._rises:
            return None
        near = [rises for slots, rises in self._by_slots.items() if slots in alike]
        if sum(len(rises.slots) for rises in near) < ENOUGH:
            near = [self._all]
        slots = sorted(chain.from_iterable(rises.slots for rises in near))
        tokens = sorted(chain.from_iterable(rises.tokens for rises in near))
        return Amount(_quantile(slots, RISE_QUANTILE), _quantile(tokens, RISE_QUANTILE))


class _Rises:
    """Rises on each axis, in order of size."""

    __slots__ = ("slots", "tokens")

    def __init__(self) -> None:
        self.slots: list[int] = []
        self.tokens: list[int] = []

    def add(self, rise: Amount) -> None:
        insort(self.slots, rise.slots)
        insort(self.tokens, rise.tokens)

    def remove(self, rise: Amount) -> None:
        _remove(self.slots, rise.slots)
        _remove(self.tokens, rise.tokens)


class _Most:
    """The largest value since a number that only grows: a queue of what may yet be the largest."""

    def __init__(self) -> None:
        self._candidates: deque[tuple[int, int]] = deque()  # number, value

    def add(self, number: int, value: int) -> None:
        candidates = self._candidates
        while candidates and candidates[-1][1] <= value:
            candidates.pop()
        candidates.append((number, value))

    def since(self, number: int) -> int:
        candidates = self._candidates
        while candidates[0][0] < number:
            candidates.popleft()
        return candidates[0][1]


def _remove(ordered: list[int], value: int) -> None:
    del ordered[bisect_left(ordered, value)]


def _quantile(ordered: Sequence[int], share: float) -> int:
    return ordered[int(share * (len(ordered) - 1))] if ordered else 0
