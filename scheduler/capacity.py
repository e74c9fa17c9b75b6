"""How much a pool carries, on both axes, and what each class owns of it."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Amount:
    """So much of a pool, on both axes: requests at a time, and tokens in flight."""

    slots: int = 0
    tokens: int = 0

    def __add__(self, other: "Amount") -> "Amount":
        return Amount(self.slots + other.slots, self.tokens + other.tokens)

    def __sub__(self, other: "Amount") -> "Amount":
        return Amount(self.slots - other.slots, self.tokens - other.tokens)

    def fits(self, room: "Amount") -> bool:
        """True when this is within `room` on both axes."""
        return self.slots <= room.slots and self.tokens <= room.tokens

    def at_least(self, other: "Amount") -> "Amount":
        """The larger of the two, axis by axis."""
        return Amount(max(self.slots, other.slots), max(self.tokens, other.tokens))

    def at_most(self, other: "Amount") -> "Amount":
        """The smaller of the two, axis by axis."""
        return Amount(min(self.slots, other.slots), min(self.tokens, other.tokens))


NOTHING = Amount()


def total(amounts: Iterable[Amount]) -> Amount:
    """All of them together."""
    slots = tokens = 0
    for amount in amounts:
        slots += amount.slots
        tokens += amount.tokens
    return Amount(slots, tokens)


@dataclass(frozen=True, slots=True)
class PoolCapacity:
    """What a pool carries, and what each class owns of it. Raises ValueError when the shares exceed the whole."""

    total: Amount
    protected_interactive: Amount
    floor: Amount

    def __post_init__(self) -> None:
        if not (self.protected_interactive + self.floor).fits(self.total):
            raise ValueError("the protected shares exceed the capacity")

    @property
    def is_dedicated(self) -> bool:
        """True when all of it is batch's own: there is no chat to look out for."""
        return self.floor == self.total

    @property
    def shared(self) -> Amount:
        """What neither class owns."""
        return self.total - self.protected_interactive - self.floor

    @property
    def most_batch(self) -> Amount:
        """The highest limit: batch's protected minimum and everything shared."""
        return self.total - self.protected_interactive

    @property
    def most_interactive(self) -> Amount:
        """What interactive may hold while batch keeps its protected minimum."""
        return self.total - self.floor
