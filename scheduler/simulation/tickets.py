"""The tickets of a night: a queue, of which a worker sees a bounded part."""

import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

AHEAD = 64  # tickets claimed and not yet started: a small one may pass the large ones among them
SPREAD = 0.5  # standard deviation of the logarithm of a length


class Ticket(NamedTuple):
    """One request of the batch, in tokens: what it asks for is its prompt and the longest answer it might get."""

    prompt_tokens: int
    output_tokens: int
    output_cap: int = 0  # where that is more than what it gets

    @property
    def tokens(self) -> int:
        return self.prompt_tokens + self.output_tokens

    @property
    def longest_output(self) -> int:
        return max(self.output_tokens, self.output_cap)


SHORT = Ticket(500, 40)
LONG = Ticket(3000, 400)


def _mix(rng: random.Random) -> Ticket:
    return SHORT if rng.random() < 0.5 else LONG


KINDS: dict[str, Callable[[random.Random], Ticket]] = {"short": lambda _: SHORT, "long": lambda _: LONG, "mix": _mix}


def endless(kind: str, seed: int) -> Iterator[Ticket]:
    """The tickets of a kind, one after the other and without end: the same ones for the same seed."""
    make, rng = KINDS[kind], random.Random(seed * 7 + 1)
    while True:
        yield make(rng)


def of_mean_lengths(
    count: int, prompt_tokens: float, output_tokens: float, seed: int, output_cap: int = 0
) -> list[Ticket]:
    """So many tickets, so long on average: lognormal around it, as texts that people write are."""
    rng = random.Random(seed * 7 + 2)

    def length(mean: float) -> int:
        return max(1, round(mean * rng.lognormvariate(-(SPREAD**2) / 2, SPREAD)))

    return [Ticket(length(prompt_tokens), length(output_tokens), output_cap) for _ in range(count)]


class TicketQueue:
    """Tickets in their order, of which the first AHEAD are seen. A yielded one goes behind those that wait."""

    def __init__(self, tickets: Iterable[Ticket]) -> None:
        self._fresh = iter(tickets)
        self._waiting: deque[Ticket] = deque()
        self._smallest: Ticket | None = None  # of those waiting; None: to be looked for
        while len(self._waiting) < AHEAD and self._append_fresh():
            pass

    @property
    def is_empty(self) -> bool:
        """Nothing waits, and nothing more will come unless it is put back."""
        return not self._waiting

    def candidates(self) -> tuple[Ticket, ...]:
        """The first, and the smallest where that is another: as the executor offers them."""
        if not self._waiting:
            return ()
        if self._smallest is None:
            self._smallest = min(self._waiting)
        first = self._waiting[0]
        return (first,) if self._smallest == first else (first, self._smallest)

    def take(self, ticket: Ticket) -> None:
        """Take out one that has been started; the queue grows again at its end."""
        self._waiting.remove(ticket)
        if ticket == self._smallest:
            self._smallest = None
        if len(self._waiting) < AHEAD:
            self._append_fresh()

    def put_back(self, ticket: Ticket) -> None:
        """It was withdrawn: behind the others."""
        self._waiting.append(ticket)
        if self._smallest is not None:
            self._smallest = min(self._smallest, ticket)

    def _append_fresh(self) -> bool:
        ticket = next(self._fresh, None)
        if ticket is not None:
            self.put_back(ticket)
        return ticket is not None
