"""What chat has held in the last minutes, and how far it rose from moments like this one: pure.

Chats come in waves, and no two are alike: what follows is foreseen from what followed when it looked as it does now,
which is known as the method of analogues (E. N. Lorenz, Journal of the Atmospheric Sciences 26, 1969).
"""

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Sequence
from itertools import islice
from statistics import fmean
from typing import NamedTuple

from scheduler.capacity import NOTHING, Amount
from scheduler.headroom import HORIZONS_SECONDS

KEEP_SECONDS = 240.0  # like moments, and busy ones, are looked for in this time
HIGH_QUANTILE = 0.9  # of the readings, what chat held in its busy moments
RISE_QUANTILE = 0.3  # of the rises: room for the chat's next wave where at seven like moments of ten it came
BEFORE_SECONDS = (4.0, 8.0)  # between these ago: what chat held then tells in which part of a wave it is
ALIKE_SHARE = 0.2  # two moments are alike where chat held the same within this and one slot, now and before
ENOUGH = 20  # like moments; where there are fewer, the likest so many count


class _Reading(NamedTuple):
    number: int
    seconds: float
    slots: int
    tokens: int
    before_slots: float  # what chat held BEFORE_SECONDS, on average


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
        reading = _Reading(self._count, seconds, amount.slots, amount.tokens, self._before(seconds, amount.slots))
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

    def rises(self) -> tuple[Amount, ...]:
        """How far chat rose within each of HORIZONS_SECONDS, at most moments like the last reading.

        A horizon that is longer than the readings reach tells what the one before it does.
        """
        if not self._readings:
            return (NOTHING,) * len(self._horizons)
        found: list[Amount] = []
        alike = self._alike()
        for horizon in self._horizons:
            before = found[-1] if found else NOTHING
            known = len(horizon.rises)
            counted = alike[: bisect_left(alike, known)]
            if len(counted) < ENOUGH:
                counted = self._likest(known)
            rise = _usual([horizon.rises[index] for index in counted])
            found.append(rise.at_least(before))  # not the same moments count for each
        return tuple(found)

    def _before(self, seconds: float, otherwise: float) -> float:
        """What chat held BEFORE_SECONDS, on average; `otherwise` where it was not read then."""
        latest, earliest = (seconds - ago for ago in BEFORE_SECONDS)
        held: list[int] = []
        for reading in reversed(self._readings):
            if reading.seconds < earliest:
                break
            if reading.seconds <= latest:
                held.append(reading.slots)
        return fmean(held) if held else otherwise

    def _alike(self) -> list[int]:
        """The readings at which chat held about what it did at the last one, and had held about as much before."""
        now, before = self._readings[-1].slots, self._readings[-1].before_slots
        lowest, highest = now - _near(now), now + _near(now)
        lowest_before, highest_before = before - _near(before), before + _near(before)
        return [
            index
            for index, (_, _, slots, _, before_slots) in enumerate(self._readings)
            if lowest <= slots <= highest and lowest_before <= before_slots <= highest_before
        ]

    def _likest(self, known: int) -> list[int]:
        """Of the oldest `known` readings those most like the last."""
        now, before = self._readings[-1].slots, self._readings[-1].before_slots
        near, near_before = _near(now), _near(before)
        unlike = [
            max(abs(slots - now) / near, abs(before_slots - before) / near_before)
            for _, _, slots, _, before_slots in islice(self._readings, known)
        ]
        return sorted(range(known), key=unlike.__getitem__)[:ENOUGH]


class _Horizon:
    """How far chat rose within so many seconds from each reading that this much is known of: the oldest ones."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._open: deque[_Reading] = deque()  # the later readings do not reach so far yet
        self._most_slots, self._most_tokens = _Most(), _Most()
        self.rises: deque[Amount] = deque()

    def add(self, reading: _Reading) -> None:
        """It is the end for those from which it is the first so far away."""
        self._open.append(reading)
        self._most_slots.add(reading.number, reading.slots)
        self._most_tokens.add(reading.number, reading.tokens)
        while reading.seconds >= self._open[0].seconds + self._seconds:
            start = self._open.popleft()
            most = Amount(self._most_slots.since(start.number), self._most_tokens.since(start.number))
            self.rises.append(most - Amount(start.slots, start.tokens))

    def forget(self) -> None:
        """The oldest reading no longer counts."""
        (self.rises or self._open).popleft()


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


def _near(slots: float) -> float:
    """How far from so many slots is still about as many."""
    return 1 + ALIKE_SHARE * slots


def _usual(rises: Sequence[Amount]) -> Amount:
    """How far it rose at most of these moments, on each axis."""
    slots, tokens = sorted(rise.slots for rise in rises), sorted(rise.tokens for rise in rises)
    return Amount(_quantile(slots, RISE_QUANTILE), _quantile(tokens, RISE_QUANTILE))


def _remove(ordered: list[int], value: int) -> None:
    del ordered[bisect_left(ordered, value)]


def _quantile(ordered: Sequence[int], share: float) -> int:
    return ordered[int(share * (len(ordered) - 1))] if ordered else 0
