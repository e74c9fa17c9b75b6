"""How much of the pool the chat leaves batch, in slots, tonight and at the hours to come: pure."""

from datetime import datetime
from statistics import NormalDist

from scheduler.capacity import Amount, PoolCapacity
from scheduler.observation import Observation
from scheduler.usual import ChatLevel, UsualLoad

RESERVE_SLOTS = 1.0  # what the limit keeps free beside the chat, at least
HALF_LIFE_SECONDS = 3600.0  # of how tonight's chat compares with the usual
DOUBT_SECONDS = 600.0  # so long tonight counts as the usual, until it has been seen
DOUBT_SLOTS = 0.5  # on both sides of that comparison: next to no chat is no measure
_NORMAL = NormalDist()


class RoomModel:
    """Compares tonight's chat with the usual, and turns chat into room for batch."""

    def __init__(self, capacity: PoolCapacity, usual: UsualLoad | None = None) -> None:
        self._capacity = capacity
        self._usual = usual
        self._tonight = self._expected = DOUBT_SECONDS
        self._slots = self._tokens = 0.0  # held by batch, times seconds

    def learn(self, seen: Observation) -> None:
        """Take in a stretch of tonight."""
        self._slots += seen.held.slots * seen.seconds
        self._tokens += seen.held.tokens * seen.seconds
        usual = self._usual.at(seen.at) if self._usual else None
        if usual is not None:
            share = 0.5 ** (seen.seconds / HALF_LIFE_SECONDS)
            self._tonight = self._tonight * share + (seen.chat.slots + DOUBT_SLOTS) * seen.seconds
            self._expected = self._expected * share + (usual.slots + DOUBT_SLOTS) * seen.seconds

    @property
    def ratio(self) -> float:
        """Tonight's chat over the usual."""
        return self._tonight / self._expected

    def beside(self, chat: Amount) -> float:
        """What a chat of exactly this leaves."""
        return min(max(self._left(chat.slots, chat.tokens), self._least), self._most)

    def usual(self, at: datetime) -> float | None:
        """What the usual chat of this hour leaves in the mean, at tonight's ratio; None: nothing is stored of it."""
        level = self._usual.at(at) if self._usual else None
        return None if level is None else self._mean_beside(level)

    def _mean_beside(self, usual: ChatLevel) -> float:
        slots = max(0.0, (usual.slots + DOUBT_SLOTS) * self.ratio - DOUBT_SLOTS)
        mean = self._left(slots, usual.tokens * self.ratio)
        spread = slots**0.5  # requests come as they please, so those in flight scatter about as Poisson says
        return self._least + _mean_above(mean, spread, self._least) - _mean_above(mean, spread, self._most)

    def _left(self, slots: float, tokens: float) -> float:
        left = self._capacity.total.slots - RESERVE_SLOTS - slots
        if self._slots > 0 and self._tokens > 0:
            left = min(left, (self._capacity.total.tokens - tokens) * self._slots / self._tokens)
        return left

    @property
    def _least(self) -> float:
        return float(self._capacity.floor.slots)

    @property
    def _most(self) -> float:
        return float(self._capacity.most_batch.slots)


def _mean_above(mean: float, spread: float, threshold: float) -> float:
    """The mean of how far a normal variable lies above a threshold, nought where it does not."""
    away = mean - threshold
    if spread <= 0:
        return max(0.0, away)
    return away * _NORMAL.cdf(away / spread) + spread * _NORMAL.pdf(away / spread)
