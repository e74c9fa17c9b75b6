"""When a batch will be done, as a range: from the work left, what was achieved, and the chat that is usual. Pure.

What batch gets done a second is a level that may drift (`level.py`), plus what the usual chat of an hour leaves it
against that of the hours seen (`room.py`). The chance of being done by a time is the chance that the work until then, a
sum with a mean and a variance, reaches what is left (`chance.py`); at p50 it is one half, at p90 nine tenths.
"""

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from scheduler.capacity import PoolCapacity
from scheduler.chance import Chances, IsOpen
from scheduler.level import Block, Prior, expectations
from scheduler.minutes import Minute, mean_rate, slope
from scheduler.observation import Observation
from scheduler.rates import NO_RATES, KnownRates, Rate, RateMeter
from scheduler.room import RoomModel
from scheduler.usual import UsualLoad
from scheduler.work import Work, latest

RECENT_SECONDS = 600.0  # what the achieved rate and the chat of now are the means of
GAP_SECONDS = 30.0  # without an observation: a pause
MOST_MINUTES = 24 * 60  # that are kept: before that was another night
FULL_ERRORS = 0.5  # standard errors that the rate at the full limit is taken above its mean: hope is not given up early
PRIOR_DOUBT = 0.3  # of a rate that was only measured on another day
NEGLIGIBLE = 1e-3  # weight of a model that is not worth asking


@dataclass(frozen=True, slots=True)
class Forecast:
    """What is known at `at` of a batch's end; rates are in tokens a second. None: not known, or beyond two weeks.

    `needed_rate` is what would do until the deadline, `achieved_rate` that of the last ten minutes. `floor_at`: done by
    then even if the chat never rests. `full_at`: done by then if batch had all of the shared part from now on.
    """

    at: datetime
    tokens_left: float
    deadline_at: datetime | None
    achieved_rate: float | None
    needed_rate: float | None
    floor_rate: Rate | None
    full_rate: Rate | None
    chat_slots: float | None
    p50_at: datetime | None
    p90_at: datetime | None
    floor_at: datetime | None
    full_at: datetime | None


class Forecaster:
    """Follows what batch achieves in its pools, and says when a batch will be done. One for each set of pools."""

    def __init__(self, capacity: PoolCapacity, usual: UsualLoad | None = None, known: KnownRates = NO_RATES) -> None:
        self._capacity = capacity
        self._known = known
        self._meter = RateMeter(capacity, known)
        self._room = RoomModel(capacity, usual)
        self._recent: deque[Observation] = deque()
        self._minutes: list[Minute] = []
        self._seen_at: datetime | None = None
        self._chances: Chances | None = None  # what follows from all that was observed

    def observe(self, seen: Observation) -> None:
        """Take in a stretch, in the order of time.

        One that does not follow the one before it, at the start or after a pause, tells less than was done: what ends
        in it had yet to begin. It only counts as the begin of what follows.
        """
        began = seen.at - timedelta(seconds=seen.seconds)
        follows = self._seen_at is not None and (began - self._seen_at).total_seconds() <= GAP_SECONDS
        self._seen_at = seen.at
        if not follows:
            return
        self._chances = None
        self._meter.add(seen)
        self._room.learn(seen)
        self._recent.append(seen)
        while sum(one.seconds for one in self._recent) - self._recent[0].seconds >= RECENT_SECONDS:
            self._recent.popleft()
        if seen.is_open:
            self._add_to_minute(seen, began)

    def forecast(self, now: datetime, work: Work, deadline_at: datetime | None, is_open: IsOpen) -> Forecast:
        """When `work` will be done; `is_open`: the hours let batch into the shared part at an instant."""
        floor, full = self._meter.floor(), self._meter.full()
        p50_at = p90_at = floor_at = full_at = now if work.tokens_left <= 0 else None
        if work.tokens_left > 0:
            p50_at, p90_at = self._range(now, work, is_open)
            if floor is not None:
                floor_at = work.finish(now, lambda _: floor.cautious)
            if full is not None:
                at_most = full.tokens_per_second * (1 + FULL_ERRORS * full.error)
                at_floor = min(floor.tokens_per_second, at_most) if floor else 0.0
                full_at = work.finish(now, lambda at: at_most if is_open(at) else at_floor)
            if self._capacity.is_dedicated:
                floor_at = p90_at  # no chat takes anything from it, so its floor is all it does
            p50_at, p90_at = _earlier(p50_at, floor_at), _earlier(p90_at, floor_at)
        return Forecast(
            now,
            work.tokens_left,
            deadline_at,
            self._recent_mean(lambda seen: seen.tokens / seen.seconds),
            None if deadline_at is None else work.needed_rate(now, deadline_at),
            floor,
            full,
            self._recent_mean(lambda seen: seen.chat.slots),
            p50_at,
            p90_at,
            floor_at,
            full_at,
        )

    def _add_to_minute(self, seen: Observation, began: datetime) -> None:
        room = self._room.beside(seen.chat)
        last = self._minutes[-1] if self._minutes else None
        if last is None or last.is_whole or (began - last.at).total_seconds() > GAP_SECONDS:
            self._minutes.append(Minute(seen.at, seen.seconds, seen.tokens, room * seen.seconds))
        else:
            last.add(seen, room)
        del self._minutes[:-MOST_MINUTES]

    def _recent_mean(self, value: Callable[[Observation], float]) -> float | None:
        seconds = sum(seen.seconds for seen in self._recent)
        return sum(value(seen) * seen.seconds for seen in self._recent) / seconds if seconds else None

    # --- the range

    def _range(self, now: datetime, work: Work, is_open: IsOpen) -> tuple[datetime | None, datetime | None]:
        self._chances = chances = self._chances or self._learn()
        if chances is None:
            return None, None
        found = [chances.reach(now, begin, tokens, is_open) for begin, tokens in work.legs(now)]
        return latest(half for half, _ in found), latest(most for _, most in found)

    def _learn(self) -> Chances | None:
        at_floor, full = self._meter.at_floor(), self._meter.full()
        rooms = [(one, self._room.usual(one.middle)) for one in self._minutes]
        worth = slope(self._minutes, self._meter.tokens_per_slot() or 0.0)
        seconds = sum(one.seconds for one, room in rooms if room is not None)
        middle = sum(room * one.seconds for one, room in rooms if room is not None) / seconds if seconds else 0.0
        blocks = [
            Block(one.at.timestamp(), one.seconds, one.rate - (0.0 if room is None else worth * (room - middle)))
            for one, room in rooms
        ]
        prior = self._prior(at_floor, full)
        scale = mean_rate(self._minutes) or (prior.mean if prior else 0.0)
        found = [one for one in expectations(blocks, scale, prior) if one.weight > NEGLIGIBLE]
        if not found:
            return None
        return Chances(found, self._room, worth if seconds else 0.0, middle, at_floor, full)

    def _prior(self, at_floor: Rate | None, full: Rate | None) -> Prior | None:
        """What a curve of another day says of the open hours, or closed hours before any open ones."""
        least = self._known.floor if self._known.floor is not None else at_floor.tokens_per_second if at_floor else 0.0
        most = self._known.full
        if most is None and full is not None and not self._minutes:
            most = full.tokens_per_second
        if not most:
            return None
        least = min(least, most)
        return Prior((least + most) / 2, math.hypot((most - least) / math.sqrt(12), PRIOR_DOUBT * most))


def _earlier(one: datetime | None, other: datetime | None) -> datetime | None:
    return other if one is None else one if other is None else min(one, other)
