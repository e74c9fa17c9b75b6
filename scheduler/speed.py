"""How fast batch is on a pool of that capacity, by its curve and by what the chat leaves it: pure."""

from dataclasses import dataclass, replace

from scheduler.capacity import PoolCapacity
from scheduler.curve import Curve


def unshared(capacity: PoolCapacity) -> PoolCapacity:
    """The same where batch never leaves its floor: the chat owns all the rest."""
    return replace(capacity, protected_interactive=capacity.most_interactive)


@dataclass(frozen=True, slots=True)
class PoolSpeed:
    """The curve of a pool read with its capacity.

    With b of batch and c of the chat in flight, an engine does what it does with b + c tickets in flight, and batch's
    share of it: a chat request is taken to load the engine like a ticket.
    """

    curve: Curve
    capacity: PoolCapacity

    @property
    def floor_slots(self) -> float:
        """What batch can use of its floor, on both axes."""
        return self._usable(self.capacity.floor.slots, self.capacity.floor.tokens)

    @property
    def full_slots(self) -> float:
        """What batch can use of the highest limit, on both axes."""
        return self._usable(self.capacity.most_batch.slots, self.capacity.most_batch.tokens)

    @property
    def floor(self) -> float:
        """Tickets/s at the floor while the chat never rests, but fills all the rest."""
        total, slots = self.capacity.total.slots, self.floor_slots
        return self.beside(slots, 0.0 if self.capacity.is_dedicated else total - slots)

    @property
    def full(self) -> float:
        """Tickets/s against the full limit, without any chat."""
        return self.beside(self.full_slots, 0.0)

    @property
    def floor_tokens_per_second(self) -> float:
        """The same at the floor in prompt and completion tokens."""
        return self.floor * (self.curve.prompt_tokens + self.curve.output_tokens)

    @property
    def full_tokens_per_second(self) -> float:
        """The same against the full limit in prompt and completion tokens."""
        return self.full * (self.curve.prompt_tokens + self.curve.output_tokens)

    def in_room(self, slots: float, chat_slots: float) -> float:
        """Tickets/s in that much room beside that much chat; never less than the floor's slots give."""
        slots = min(max(slots, self.floor_slots), self.full_slots)
        return self.beside(slots, min(chat_slots, self.capacity.total.slots - slots))

    def beside(self, slots: float, chat_slots: float) -> float:
        """Tickets/s with so many slots beside so much chat in flight."""
        together = slots + max(0.0, chat_slots)
        return self.curve.tickets_per_second(together) * slots / together

    def _usable(self, slots: int, tokens: int) -> float:
        """So many slots as far as the tokens go; at least one ticket is always admitted."""
        return min(float(slots), max(1.0, tokens / max(1.0, self.curve.ask_tokens)))
