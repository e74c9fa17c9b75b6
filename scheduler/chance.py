"""The chance that work is done by a time, and when it is one half and nine tenths: pure."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from statistics import NormalDist

from scheduler.level import WANDER_SECONDS, Expectation
from scheduler.rates import Rate
from scheduler.room import RoomModel
from scheduler.work import steps

IsOpen = Callable[[datetime], bool]

MODEL_ERROR = 0.02  # of the work to come: what no model here knows of
ABOVE_FULL = 1.1  # of the rate at the full limit: a night is not faster
HALF, MOST = 0.5, 0.9
_NORMAL = NormalDist()


@dataclass(frozen=True, slots=True)
class Chances:
    """What the open hours to come are made of: models of the level, and what the usual chat adds to it or takes."""

    models: Sequence[Expectation]
    room: RoomModel
    slope: float  # tokens a second for each slot of room
    middle_room: float  # of the blocks seen
    at_floor: Rate | None
    full: Rate | None

    def reach(
        self, now: datetime, begin: datetime, tokens: float, is_open: IsOpen
    ) -> tuple[datetime | None, datetime | None]:
        """When the chance that `tokens` were done since `begin` is one half, and when it is nine tenths."""
        walk = _Walk(self, (begin - now).total_seconds(), tokens)
        before, half = 0.0, None
        for offset, step in steps():
            middle = begin + timedelta(seconds=offset + step / 2)
            walk.go(step, self._gain(middle) if is_open(middle) else None)
            chance = walk.chance()
            if half is None and chance >= HALF:
                half = begin + timedelta(seconds=offset + step * (HALF - before) / (chance - before))
            if chance >= MOST:
                return half, begin + timedelta(seconds=offset + step * (MOST - before) / (chance - before))
            before = chance
        return half, None

    def bounds(self) -> tuple[float, float]:
        """Tokens a second that the open hours are not slower and not faster than."""
        least = self.at_floor.tokens_per_second if self.at_floor else 0.0
        most = self.full.bold * ABOVE_FULL if self.full else math.inf
        return min(least, most), most

    def _gain(self, at: datetime) -> float:
        room = self.room.usual(at)
        return 0.0 if room is None else self.slope * (room - self.middle_room)


class _Walk:
    """Goes into the time to come step by step, with the work done until then by each model."""

    def __init__(self, chances: Chances, waits_seconds: float, tokens: float) -> None:
        self._models = chances.models
        self._weights = math.fsum(model.weight for model in chances.models)
        self._least, self._most = chances.bounds()
        floor = chances.at_floor
        self._floor_rate, self._floor_error = (floor.tokens_per_second, floor.error) if floor else (0.0, 0.0)
        self._waits = waits_seconds
        self._tokens = tokens
        self._open = self._closed = 0.0  # seconds
        self._done = [0.0] * len(self._models)
        self._chances = [0.0] * len(self._models)

    def go(self, seconds: float, gain: float | None) -> None:
        """A step on; `gain`: what the usual chat adds to the level, None in closed hours."""
        if gain is None:
            self._closed += seconds
            return
        kept = math.exp(-(self._waits + self._open) / WANDER_SECONDS)
        for number, model in enumerate(self._models):
            rate = model.level + model.wander * kept + gain
            self._done[number] += min(max(rate, self._least), self._most) * seconds
        self._open += seconds

    def chance(self) -> float:
        """That the work is done by now: what was once likely stays so."""
        closed = self._closed * self._floor_rate
        spread = (closed * self._floor_error) ** 2
        whole = 0.0
        for number, model in enumerate(self._models):
            done = self._done[number] + closed
            variance = model.sum_variance(self._open) + model.drift_variance * self._waits * self._open**2
            deviation = math.sqrt(variance + spread + (MODEL_ERROR * done) ** 2)
            if deviation > 0:
                chance = _NORMAL.cdf((done - self._tokens) / deviation)
                self._chances[number] = max(self._chances[number], chance)
            whole += model.weight * self._chances[number]
        return whole / self._weights
