"""What batch cost the chat: minutes in which batch was held at its floor by chance, against others like them. Pure.

A plain comparison misleads: batch is at its floor exactly when the chat is busy. So the held-out minutes
(`scheduler.holdout`), which chance has chosen, are each compared with those of a like chat: as many requests in flight
just before the minute, and as many that came in it. Neither is changed by what batch holds in the minute itself; what
chat has in flight during it would be, where batch slows the chat down.

The interval covers both ways in which few held-out minutes can mislead. They are a draw from minutes that scatter: the
mean of as many others, drawn again and again, shows how far such a draw lands from the truth (a permutation test turned
into an interval; Rosenbaum, Observational Studies, section 2.6). Because chance drew them, it does not matter that
minutes near each other are alike. And what batch costs differs from minute to minute: Student's t over the differences.
The wider of the two holds on each side.
"""

import math
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import takewhile
from statistics import NormalDist, fmean, pstdev, stdev

from scheduler.holdout import MINUTE_SECONDS, minute_of

CONFIDENCE = 0.95
SAMPLE_SECONDS = 10.0  # what a look tells of: the time since the one before it
SETTLE_SECONDS = 20.0  # of every minute, in which batch's requests in flight end, or come back
NEIGHBOURS = 20  # minutes that a held-out one is compared with, at least
NEIGHBOUR_SHARE = 0.1  # of all others
LEAST_HELD_OUT = 3  # minutes: of fewer no interval can be told
LEAST_OTHERS = 10
DRAWN = 200_000  # minutes in all draws together
MOST_DRAWS = 4_000
_Z = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)


@dataclass(frozen=True, slots=True)
class Look:
    """A pool at the instant `at`, and what came since the look before.

    19 of 20 first tokens of chat since then came within `ttft_seconds`, None where there were none. `is_open`: batch
    might have borrowed then, but for the chat and for being held out.
    """

    at: datetime
    chat_slots: int
    arrivals: int
    ttft_seconds: float | None
    batch_slots: int
    is_held_out: bool
    is_open: bool


@dataclass(frozen=True, slots=True)
class Cost:
    """What batch cost the chat: by how much the mean of ten-second p95s of its TTFT grew, and between which bounds."""

    seconds: float
    low_seconds: float
    high_seconds: float

    @property
    def least_told_seconds(self) -> float:
        """The least cost that an interval as wide as this one would have told from nothing."""
        return self.seconds - self.low_seconds


@dataclass(frozen=True, slots=True)
class Receipt:
    """The comparison. `held_out` minutes with chat in which batch stayed at its floor, against `others` with chat.

    The TTFTs are means over minutes of the p95s of ten seconds, so no share of the night's requests came within them:
    `floor_ttft_seconds` was seen in the held-out minutes, `ttft_seconds` is that and the cost. Batch held so many slots
    on average in the two. `cost` is None where the minutes are too few to tell it.
    """

    held_out: int
    others: int
    ttft_seconds: float | None
    floor_ttft_seconds: float | None
    batch_slots: float | None
    floor_batch_slots: float | None
    cost: Cost | None


@dataclass(frozen=True, slots=True)
class _Minute:
    """The settled part of a minute, and the chat before it."""

    chat_before: float
    arrivals: float
    ttft_seconds: float
    batch_slots: float
    is_held_out: bool


def receipt(looks: Iterable[Look]) -> Receipt:
    """The receipt of one pool's night, from its looks in order."""
    minutes = _minutes(looks)
    held_out = [minute for minute in minutes if minute.is_held_out]
    others = [minute for minute in minutes if not minute.is_held_out]
    floor_slots = fmean(minute.batch_slots for minute in held_out) if held_out else None
    slots = fmean(minute.batch_slots for minute in others) if others else None
    floor_ttft = fmean(minute.ttft_seconds for minute in held_out) if held_out else None
    if len(held_out) < LEAST_HELD_OUT or len(others) < LEAST_OTHERS:
        return Receipt(len(held_out), len(others), None, floor_ttft, slots, floor_slots, None)
    matches = _Matches(minutes, others)
    differences = [matches.ttft_seconds(minute) - minute.ttft_seconds for minute in held_out]
    scatter = [matches.ttft_seconds(minute) - minute.ttft_seconds for minute in others]
    cost = _cost(differences, scatter)
    floor_ttft = fmean(minute.ttft_seconds for minute in held_out)
    return Receipt(len(held_out), len(others), floor_ttft + cost.seconds, floor_ttft, slots, floor_slots, cost)


def _cost(differences: Sequence[float], scatter: Sequence[float]) -> Cost:
    """From how much later the chat's first tokens came than in each held-out minute, and the same of the others."""
    count, amiss = len(differences), fmean(scatter)  # how far the matches are from the minutes, batch or no batch
    mean = fmean(differences) - amiss
    rng = random.Random(count)  # noqa: S311 the same night gives the same receipt
    drawn = min(count, len(scatter))
    means = sorted(fmean(rng.sample(scatter, drawn)) for _ in range(min(MOST_DRAWS, max(1, DRAWN // drawn))))
    beyond = int(len(means) * (1 - CONFIDENCE) / 2)
    reach = _student(count - 1) * stdev(differences) / math.sqrt(count)

    return Cost(mean, mean - max(reach, means[-1 - beyond] - amiss), mean + max(reach, amiss - means[beyond]))


class _Matches:
    """Finds the minutes in which the chat was most like it was in another."""

    def __init__(self, minutes: Sequence[_Minute], others: Sequence[_Minute]) -> None:
        self._others = others
        self._count = max(NEIGHBOURS, round(NEIGHBOUR_SHARE * len(others)))
        self._before = pstdev([minute.chat_before for minute in minutes]) or 1.0
        self._arrivals = pstdev([minute.arrivals for minute in minutes]) or 1.0

    def ttft_seconds(self, minute: _Minute) -> float:
        """The mean TTFT of the minutes like this one, itself not among them."""
        before, arrivals = minute.chat_before, minute.arrivals
        found = sorted(
            (
                ((other.chat_before - before) / self._before) ** 2
                + ((other.arrivals - arrivals) / self._arrivals) ** 2,
                other.ttft_seconds,
            )
            for other in self._others
            if other is not minute
        )
        furthest = found[min(self._count, len(found)) - 1][0]
        return fmean(seconds for _, seconds in takewhile(lambda one: one[0] <= furthest, found))  # all that are as near


def _minutes(looks: Iterable[Look]) -> list[_Minute]:
    """The minutes in which batch might have borrowed and the chat got first tokens, and before which it was seen."""
    by_minute: dict[int, list[Look]] = {}
    for look in looks:
        by_minute.setdefault(minute_of(look.at), []).append(look)
    found = (_minute(by_minute.get(number - 1, ()), seen) for number, seen in by_minute.items())
    return [minute for minute in found if minute is not None]


def _minute(before: Sequence[Look], seen: Sequence[Look]) -> _Minute | None:
    settled = [look for look in seen if look.at.timestamp() % MINUTE_SECONDS >= SETTLE_SECONDS + SAMPLE_SECONDS]
    with_chat = [look for look in settled if look.ttft_seconds is not None]
    held_out = {look.is_held_out for look in settled}
    if not before or not with_chat or len(held_out) > 1 or not all(look.is_open for look in seen):
        return None
    weights = [max(1, look.arrivals) for look in with_chat]
    ttfts = [look.ttft_seconds or 0.0 for look in with_chat]
    return _Minute(
        chat_before=fmean(look.chat_slots for look in before),
        arrivals=fmean(look.arrivals for look in seen),
        ttft_seconds=fmean(ttfts, weights),
        batch_slots=fmean(look.batch_slots for look in settled),
        is_held_out=held_out == {True},
    )


def _student(freedom: int) -> float:
    """Student's t that CONFIDENCE lies within (Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.5)."""
    z = _Z
    terms = (
        z,
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92_160,
    )
    return math.fsum(term / freedom**power for power, term in enumerate(terms))
