"""A bound for any admission: it knows every chat request that will come, and how long everything takes.

It starts a ticket only if at no moment of the ticket's duration chat in flight (future arrivals included) and its own
tickets exceed the capacity less `spare` chat requests, on both axes. It keeps batch's floor and highest limit, paces
its prompts, and never withdraws. Durations are predicted from the engine's profile at its usual fill. It is not the
best that could be done with that knowledge, which nobody can compute here; with `spare` from below zero up it gives the
whole curve of what this rule reaches.
"""

from bisect import bisect_right
from collections.abc import Sequence

from scheduler.capacity import NOTHING, Amount
from scheduler.simulation.shapes import Arrival
from scheduler.simulation.tickets import Ticket
from scheduler.simulation.world import Chat, Flight, World
from tests.simulation.peers import Door, amount_of

USUAL_FILL = 0.7  # of the slots are decoding in a step
PREFILL_SECONDS = 0.04  # of its own prompts may be on their way to a first token, or one ticket
LOOK_AGAIN_SECONDS = 0.1
OVERDUE_SECONDS = 0.1  # what should have ended will end in so long
SPARES = (-6, -4, -3, -2, -1, 0, 1, 2, 3, 4, 6, 8, 10)  # for 20 slots


class Clairvoyant(Door):
    """Sees the chat's schedule. Room for `spare` requests more than it needs is kept free, or overdrawn if negative."""

    def __init__(self, chat: Sequence[Arrival], spare: int) -> None:
        self._schedule = chat
        self._times = [arrival.at for arrival in chat]
        self._spare = spare

    def begin(self, world: World) -> None:
        super().begin(world)
        site, profile, chat = world.site, world.site.profile, self._schedule
        prompt_tokens = sum(arrival.prompt_tokens for arrival in chat)
        mean_tokens = (prompt_tokens + sum(arrival.output_tokens for arrival in chat)) // max(1, len(chat))
        self._room = site.capacity.total - Amount(self._spare, self._spare * mean_tokens)
        self._token_seconds = profile.prefill_token_seconds
        # A step is longer for the chat's prompts that are prefilled beside it.
        prefilling = prompt_tokens * profile.prefill_token_seconds / (site.engines * self._times[-1])
        decoding_seconds = USUAL_FILL * profile.slots * profile.decode_sequence_seconds
        self._step_seconds = (profile.step_base_seconds + decoding_seconds) / (1 - min(0.5, prefilling))
        self._chat_ends: dict[str, tuple[float, int]] = {}  # when, and the tokens
        self._own_ends: dict[str, tuple[float, int]] = {}
        self._own = NOTHING
        self._prefilling = 0
        self._look_at = 0.0

    def admits_chat(self, chat: Chat) -> bool:
        is_admitted = super().admits_chat(chat)
        if is_admitted:
            self._chat_ends[chat.id] = (self._end(chat.arrival, self.world.now), amount_of(chat).tokens)
        return is_admitted

    def chat_ended(self, chat: Chat) -> None:
        super().chat_ended(chat)
        del self._chat_ends[chat.id]
        self._look_at = self.world.now

    def ticket_first_token(self, flight: Flight) -> None:
        self._prefilling -= flight.ticket.prompt_tokens
        self._look_at = self.world.now

    def ticket_ended(self, flight: Flight) -> None:
        del self._own_ends[flight.id]
        self._own -= Amount(1, flight.ticket.tokens)
        self._look_at = self.world.now

    def pump(self) -> None:
        if self.world.now < self._look_at:
            return
        while any(self._try(ticket) for ticket in self.world.tickets.candidates()):
            pass
        self._look_at = self.world.now + LOOK_AGAIN_SECONDS
        self.world.call_at(self._look_at, _nothing)

    def _try(self, ticket: Ticket) -> bool:
        if self._prefilling and (self._prefilling + ticket.prompt_tokens) * self._token_seconds > PREFILL_SECONDS:
            return False
        capacity, wanted = self.world.site.capacity, Amount(1, ticket.tokens)
        if not (self._own + wanted).fits(capacity.most_batch):
            return False
        end = self._end(ticket, self.world.now)
        if not (self._own + wanted).fits(capacity.floor) and not (self._peak(end) + wanted).fits(self._room):
            return False
        flight = self.world.start(ticket)
        self._own_ends[flight.id] = (end, ticket.tokens)
        self._own += wanted
        self._prefilling += ticket.prompt_tokens
        return True

    def _peak(self, until: float) -> Amount:
        """The most in use at one moment from now until then, on each axis, without anything new of ours."""
        soon = self.world.now + OVERDUE_SECONDS
        running = [*self._chat_ends.values(), *self._own_ends.values()]
        changes = [(max(end, soon), -1, -tokens) for end, tokens in running]
        first, last = bisect_right(self._times, self.world.now), bisect_right(self._times, until)
        for arrival in self._schedule[first:last]:
            tokens = arrival.prompt_tokens + arrival.output_tokens
            changes.append((arrival.at, 1, tokens))
            changes.append((self._end(arrival, arrival.at), -1, -tokens))
        changes.sort()
        slots = most_slots = len(running)
        tokens = most_tokens = sum(tokens for _, tokens in running)
        for at, more_slots, more_tokens in changes:
            if at > until:
                break
            slots += more_slots
            tokens += more_tokens
            most_slots, most_tokens = max(most_slots, slots), max(most_tokens, tokens)
        return Amount(most_slots, most_tokens)

    def _end(self, request: Arrival | Ticket, at: float) -> float:
        return at + request.prompt_tokens * self._token_seconds + request.output_tokens * self._step_seconds


def _nothing() -> None:
    """Wakes the world, whose policy then looks again."""
