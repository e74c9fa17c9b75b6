"""How fast batch is at its floor and against its full limit, and where each number comes from: pure."""

import math
from dataclasses import dataclass, field
from enum import StrEnum

from scheduler.capacity import PoolCapacity
from scheduler.observation import Observation

HALF_LIFE_SECONDS = 3600.0  # of what was seen: tickets and chat change through the night
ENOUGH_SECONDS = 120.0  # at the floor, or against the full limit, before it counts as measured
FEWEST_SECONDS = 20.0  # of any work before anything is scaled from it
NEARLY_FULL = 0.9  # of the full limit held, on one axis, counts as all of it
NOISE = 0.35  # of a stretch of ten seconds, relative to its rate, until more has been seen
NOISE_WEIGHT = 4  # such stretches' worth of that guess
NINE_IN_TEN = 1.28  # standard errors


class RateSource(StrEnum):
    """Where a rate comes from."""

    MEASURED = "measured"  # this night
    CURVE = "curve"  # when the pool was measured before
    SCALED = "scaled"  # from what each slot in use achieved this night


@dataclass(frozen=True, slots=True)
class Rate:
    """Tokens of ended jobs a second; `error` is the standard error relative to it."""

    tokens_per_second: float
    source: RateSource
    error: float = 0.0

    @property
    def cautious(self) -> float:
        """What it is at least, nine times in ten."""
        return self.tokens_per_second * max(0.0, 1 - NINE_IN_TEN * self.error)

    @property
    def bold(self) -> float:
        """What it is at most, nine times in ten."""
        return self.tokens_per_second * (1 + NINE_IN_TEN * self.error)

    def scaled(self, factor: float) -> "Rate":
        """As much for another share of the pool."""
        return Rate(self.tokens_per_second * factor, RateSource.SCALED, self.error)


@dataclass(frozen=True, slots=True)
class KnownRates:
    """Rates from a measured curve, in tokens a second; None: not known."""

    floor: float | None = None
    full: float | None = None


NO_RATES = KnownRates()


class RateMeter:
    """Takes in a night stretch by stretch."""

    def __init__(self, capacity: PoolCapacity, known: KnownRates = NO_RATES) -> None:
        self._capacity = capacity
        self._known = known
        self._all, self._floor, self._full = _Sum(), _Sum(), _Sum()
        self._is_full = False

    def add(self, seen: Observation) -> None:
        """Take in a stretch."""
        was_full, self._is_full = self._is_full, self._holds_most(seen)
        for one in (self._all, self._floor, self._full):
            one.fade(seen.seconds)
        self._all.add(seen)
        if not seen.is_open or seen.limit.fits(self._capacity.floor):
            self._floor.add(seen)
        elif was_full and self._is_full:  # what is held is known of the end of a stretch only
            self._full.add(seen)

    def floor(self) -> Rate | None:
        """At batch's protected minimum beside a busy chat; None: nothing is known yet.

        At the floor by its hours, with little chat beside it, the slots were faster than they would be on a busy
        engine: the lower of that and what is scaled from the rest of the night counts.
        """
        floor = self._capacity.floor
        if floor.slots == 0:
            return Rate(0.0, RateSource.MEASURED)
        scaled = self._scaled(floor.slots, floor.tokens, most=1.0)
        if self._floor.seconds >= ENOUGH_SECONDS:
            measured = self._floor.rate()
            if scaled is None or measured.tokens_per_second <= scaled.tokens_per_second:
                return measured
            return scaled
        return Rate(self._known.floor, RateSource.CURVE) if self._known.floor is not None else scaled

    def at_floor(self) -> Rate | None:
        """At batch's protected minimum as it was tonight, else as `floor`."""
        return self._floor.rate() if self._floor.seconds >= ENOUGH_SECONDS else self.floor()

    def full(self) -> Rate | None:
        """With all that batch may ever hold; None: nothing is known yet."""
        if self._full.seconds >= ENOUGH_SECONDS:
            return self._full.rate()
        if self._known.full is not None:
            return Rate(self._known.full, RateSource.CURVE)
        most = self._capacity.most_batch
        return self._scaled(most.slots, most.tokens, least=1.0)

    def tokens_per_slot(self) -> float | None:
        """What a slot in use achieves a second; None before anything was seen."""
        held = self._all.slot_seconds
        return self._all.tokens / held if held > 0 and self._all.tokens > 0 else None

    def tokens_in_flight_per_slot(self) -> float | None:
        """How many tokens in flight a slot of ours stands for; None before anything was seen."""
        held = self._all.slot_seconds
        return self._all.token_seconds / held if held > 0 else None

    def _holds_most(self, seen: Observation) -> bool:
        most = self._capacity.most_batch
        return seen.held.slots >= NEARLY_FULL * most.slots or seen.held.tokens >= NEARLY_FULL * most.tokens

    def _scaled(self, slots: int, tokens: int, *, least: float = 0.0, most: float = math.inf) -> Rate | None:
        seen = self._all
        if seen.seconds < FEWEST_SECONDS or seen.tokens == 0 or seen.slot_seconds == 0:
            return None
        factor = slots * seen.seconds / seen.slot_seconds
        if seen.token_seconds > 0:
            factor = min(factor, tokens * seen.seconds / seen.token_seconds)
        return seen.rate().scaled(min(max(factor, least), most))


@dataclass(slots=True)
class _Sum:
    """Sums over stretches, older ones fading."""

    seconds: float = 0.0
    tokens: float = 0.0
    slot_seconds: float = 0.0
    token_seconds: float = 0.0
    _squares: float = field(default=0.0)  # of rates, times seconds
    _count: float = 0.0

    def fade(self, seconds: float) -> None:
        share = 0.5 ** (seconds / HALF_LIFE_SECONDS)
        self.seconds *= share
        self.tokens *= share
        self.slot_seconds *= share
        self.token_seconds *= share
        self._squares *= share
        self._count *= share

    def add(self, seen: Observation) -> None:
        self.seconds += seen.seconds
        self.tokens += seen.tokens
        self.slot_seconds += seen.held.slots * seen.seconds
        self.token_seconds += seen.held.tokens * seen.seconds
        self._squares += seen.tokens**2 / seen.seconds
        self._count += 1

    def rate(self) -> Rate:
        mean = self.tokens / self.seconds
        if mean == 0:
            return Rate(0.0, RateSource.MEASURED, 1.0)
        seen = max(0.0, self._squares / self.seconds - mean**2) / mean**2
        variance = (seen * self._count + NOISE**2 * NOISE_WEIGHT) / (self._count + NOISE_WEIGHT)
        return Rate(mean, RateSource.MEASURED, math.sqrt(variance / self._count))
