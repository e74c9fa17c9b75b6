"""The opponents: fixed numbers of tickets in flight, with and without the engine's own priority."""

from scheduler.capacity import NOTHING, Amount
from scheduler.simulation.world import Chat, Policy, World


class Door(Policy):
    """The door that every row's chat goes through: its own use stays within capacity less batch's protected share."""

    def begin(self, world: World) -> None:
        super().begin(world)
        self._chat = NOTHING

    def admits_chat(self, chat: Chat) -> bool:
        wanted = self._chat + amount_of(chat)
        if not wanted.fits(self.world.site.capacity.most_interactive):
            return False
        self._chat = wanted
        return True

    def chat_ended(self, chat: Chat) -> None:
        self._chat -= amount_of(chat)


class FixedCap(Door):
    """Always so many tickets in flight."""

    def __init__(self, tickets: int, priority: int = 0) -> None:
        self._tickets = tickets
        self._priority = priority

    def pump(self) -> None:
        while len(self.world.flights) < self._tickets:
            self.world.start(self.world.tickets.candidates()[0], self._priority)


def amount_of(chat: Chat) -> Amount:
    """What a chat request holds."""
    return Amount(1, chat.arrival.prompt_tokens + chat.arrival.output_tokens)
