"""What a pool showed on average since somebody last asked: pure but for its lock."""

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Self

from scheduler.capacity import Amount, total
from scheduler.pool_reading import PoolReading


@dataclass(frozen=True, slots=True)
class MeanLoad:
    """The mean of a pool's readings: what chat and batch held, and what batch might hold."""

    chat: Amount
    held: Amount
    limit: Amount

    @classmethod
    def of(cls, readings: Iterable[tuple[Amount, Amount, Amount]]) -> Self:
        """From what chat held, batch held and batch might hold, at least once."""
        chat, held, limit = (_mean(amounts) for amounts in zip(*readings, strict=True))
        return cls(chat, held, limit)


class LoadMeter:
    """Readings are added from one thread and taken from another."""

    def __init__(self) -> None:
        self._readings: dict[str, list[tuple[Amount, Amount, Amount]]] = {}
        self._lock = threading.Lock()

    def add(self, pools: Sequence[PoolReading]) -> None:
        """Take in a look at every pool."""
        with self._lock:
            for pool in pools:
                self._readings.setdefault(pool.name, []).append((pool.chat, pool.snapshot.batch, pool.limit))

    def take(self) -> dict[str, MeanLoad]:
        """The mean of each pool since the last call, without those of which nothing was read."""
        with self._lock:
            readings, self._readings = self._readings, {}
        return {name: MeanLoad.of(seen) for name, seen in readings.items()}


def _mean(amounts: Sequence[Amount]) -> Amount:
    sums = total(amounts)
    return Amount(round(sums.slots / len(amounts)), round(sums.tokens / len(amounts)))
