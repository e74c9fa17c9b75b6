"""What the peers reach at a given chat p99: the upper envelope of their points, linear between them."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple


class Point(NamedTuple):
    """One row by what it costs the chat and what it gets done."""

    p99: float
    rate: float


@dataclass(frozen=True, slots=True)
class Frontier:
    """The points of which none is both slower for the chat and no faster for batch than another, by p99."""

    points: tuple[Point, ...]

    @classmethod
    def of(cls, points: Iterable[Point]) -> "Frontier":
        best: list[Point] = []
        for point in sorted(points, key=lambda p: (p.p99, -p.rate)):
            if not best or point.rate > best[-1].rate:
                best.append(point)
        return cls(tuple(best))

    def at(self, p99: float) -> float | None:
        """The rate at a p99; beyond the last point that point's, and None below the first."""
        if p99 < self.points[0].p99:
            return None
        for low, high in zip(self.points, self.points[1:], strict=False):
            if p99 < high.p99:
                return low.rate + (high.rate - low.rate) * (p99 - low.p99) / (high.p99 - low.p99)
        return self.points[-1].rate
