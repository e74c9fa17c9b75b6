"""The tickets of a night: an endless queue, of which a worker sees a bounded part."""

import random
from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

AHEAD = 64  # tickets claimed and not yet started: a small one may pass the large ones among them


class Ticket(NamedTuple):
    """One request of the batch, in tokens."""

    prompt_tokens: int
    output_tokens: int

    @property
    def tokens(self) -> int:
        return self.prompt_tokens + self.output_tokens


SHORT = Ticket(500, 40)
LONG = Ticket(3000, 400)


def _mix(rng: random.Random) -> Ticket:
    return SHORT if rng.random() < 0.5 else LONG


KINDS: dict[str, Callable[[random.Random], Ticket]] = {"short": lambda _: SHORT, "long": lambda _: LONG, "mix": _mix}


class TicketQueue:
    """The tickets of a kind in the order of their seed. A yielded one goes behind those that wait."""

    def __init__(self, kind: str, seed: int) -> None:
        self._fresh = self._endless(KINDS[kind], random.Random(seed * 7 + 1))
        self._waiting = deque(next(self._fresh) for _ in range(AHEAD))

    def candidates(self) -> tuple[Ticket, ...]:
        """The first, and the smallest where that is another: as the executor offers them."""
        first = self._waiting[0]
        smallest = min(self._waiting)
        return (first,) if smallest == first else (first, smallest)

    def take(self, ticket: Ticket) -> None:
        """Take out one that has been started; the queue grows again at its end."""
        self._waiting.remove(ticket)
        if len(self._waiting) < AHEAD:
            self._waiting.append(next(self._fresh))

    def put_back(self, ticket: Ticket) -> None:
        """It was withdrawn: behind the others."""
        self._waiting.append(ticket)

    def _endless(self, make: Callable[[random.Random], Ticket], rng: random.Random) -> Iterator[Ticket]:
        while True:
            yield make(rng)
