"""One night as a discrete-event model: chat through its door, tickets as a policy admits, engines in virtual time."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import cycle

from scheduler.simulation.engine.core import EngineCore
from scheduler.simulation.engine.request import Aborted, Event, Finished, FirstToken, Request
from scheduler.simulation.shapes import Arrival
from scheduler.simulation.site import Site
from scheduler.simulation.tickets import Ticket, TicketQueue

DOOR_AGAIN_SECONDS = 0.05  # how often a chat request that waits at the door asks again


@dataclass(slots=True)
class Chat:
    """A chat request, from its arrival on."""

    id: str
    arrival: Arrival
    first_token_at: float | None = None


@dataclass(slots=True)
class Flight:
    """A ticket at an engine."""

    id: str
    ticket: Ticket
    engine: EngineCore
    started_at: float
    first_token_at: float | None = None
    is_withdrawn: bool = False
    asked_back_at: float = 0.0


@dataclass(slots=True)
class Tally:
    """What a night came to, in counts."""

    ttfts_seconds: list[float] = field(default_factory=list)
    refused: int = 0
    refused_above_floor: int = 0  # while the engines held more batch than its floor
    tickets: int = 0
    ticket_tokens: int = 0
    ticket_prompt_tokens: int = 0
    too_large: int = 0  # tickets that could never be admitted
    too_large_tokens: int = 0
    wasted_tokens: int = 0
    withdrawn: int = 0
    pull_backs: dict[float, float] = field(default_factory=dict)  # when asked, and when the last of it had gone


class Policy:
    """Who admits. It learns what happens by the hooks, and starts tickets in `pump`, which follows every event."""

    world: "World"

    def begin(self, world: "World") -> None:
        self.world = world

    def admits_chat(self, chat: Chat) -> bool:
        """Whether a chat request may go to the engine now."""
        raise NotImplementedError

    def chat_first_token(self, chat: Chat) -> None: ...

    def chat_ended(self, chat: Chat) -> None: ...

    def ticket_first_token(self, flight: Flight) -> None: ...

    def ticket_ended(self, flight: Flight) -> None: ...

    def pump(self) -> None: ...

    def night_ended(self) -> None: ...


class World:
    """Plays `seconds` of a night, and on until every chat request of that time has its first token or was refused.

    With the last ticket done, or when the policy says so, it ends sooner. What batch does later is not counted.
    """

    def __init__(
        self, site: Site, chat: Sequence[Arrival], tickets: TicketQueue, policy: Policy, seconds: float
    ) -> None:
        self.site = site
        self.tickets = tickets
        self.now = 0.0
        self.chat: dict[str, Chat] = {}  # at the engines
        self.flights: dict[str, Flight] = {}  # at the engines, those being aborted included
        self.tally = Tally()
        self._engines = [EngineCore(site.profile) for _ in range(site.engines)]
        self._balancer = cycle(self._engines)
        self._arrivals = chat
        self._policy = policy
        self.seconds = seconds
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._number = 0
        self._started = 0
        self._unanswered = 0

    @property
    def own(self) -> int:
        """Tickets in flight that nobody has withdrawn."""
        return sum(not flight.is_withdrawn for flight in self.flights.values())

    @property
    def next_flight(self) -> str:
        """The id that the next ticket will have, so that its permit can bear it."""
        return f"b{self._started}"

    def call_at(self, at: float, what: Callable[[], None]) -> None:
        """Have something done at a time."""
        self._number += 1
        heappush(self._timers, (at, self._number, what))

    def start(self, ticket: Ticket, priority: int = 0) -> Flight:
        """Send a ticket to the next engine."""
        self.tickets.take(ticket)
        flight = Flight(self.next_flight, ticket, next(self._balancer), self.now)
        self._started += 1
        self.flights[flight.id] = flight
        self._send(flight.engine, Request(flight.id, ticket.prompt_tokens, ticket.output_tokens, priority, "batch"))
        return flight

    def give_up(self, ticket: Ticket) -> None:
        """A ticket that no pool of this size can carry fails."""
        self.tickets.take(ticket)
        self.tally.too_large += 1
        self.tally.too_large_tokens += ticket.tokens

    def withdraw(self, flight: Flight, asked_back_at: float) -> None:
        """Close the request of a ticket; the ticket goes back to the queue. The engine lets go of it a step later."""
        if not flight.is_withdrawn and flight.engine.abort(flight.id, self.now):
            flight.is_withdrawn = True
            flight.asked_back_at = asked_back_at
            self.tally.withdrawn += 1
            self.tickets.put_back(flight.ticket)

    def end(self) -> None:
        """The night is over before its time: no chat request comes any more."""
        if self.now < self.seconds:
            self.seconds = self.now
            self._policy.night_ended()

    def run(self) -> Tally:
        """Play the night."""
        self._policy.begin(self)
        self._pump()
        coming = iter(self._arrivals)
        arrival = next(coming, None)
        while self.now < self.seconds or self._unanswered:
            self.now = self._next_time(arrival)
            for engine in self._engines:
                for event in engine.advance(self.now):
                    self._take(event)
            while self._timers and self._timers[0][0] <= self.now:
                heappop(self._timers)[2]()
            while arrival is not None and arrival.at <= min(self.now, self.seconds):
                self._arrive(arrival)
                arrival = next(coming, None)
            self._pump()
        return self.tally

    def _pump(self) -> None:
        self._policy.pump()
        if not self.flights and self.tickets.is_empty:
            self.end()

    def _send(self, engine: EngineCore, request: Request) -> None:
        if (rejected := engine.submit(request, self.now)) is not None:
            tokens = request.prompt_tokens + request.output_tokens
            raise ValueError(f"an engine of this profile refuses a request of {tokens} tokens: {rejected.reason}")

    def _next_time(self, arrival: Arrival | None) -> float:
        at = min(engine.next_event_time() for engine in self._engines)
        if self._timers:
            at = min(at, self._timers[0][0])
        if arrival is not None and arrival.at <= self.seconds:
            at = min(at, arrival.at)
        return min(at, self.seconds) if self.now < self.seconds else at

    # --- the door

    def _arrive(self, arrival: Arrival) -> None:
        self._number += 1
        self._unanswered += 1
        self._knock(Chat(f"c{self._number}", arrival))

    def _knock(self, chat: Chat) -> None:
        if self._policy.admits_chat(chat):
            self.chat[chat.id] = chat
            request = Request(chat.id, chat.arrival.prompt_tokens, chat.arrival.output_tokens, 0, "chat")
            self._send(next(self._balancer), request)
        elif self.now + DOOR_AGAIN_SECONDS <= chat.arrival.at + self.site.door_seconds:
            self.call_at(self.now + DOOR_AGAIN_SECONDS, lambda: self._knock(chat))
        else:
            self._unanswered -= 1
            self.tally.refused += 1
            self.tally.refused_above_floor += self.own > self.site.capacity.floor.slots

    # --- what the engines report

    def _take(self, event: Event) -> None:
        id = event.request.id
        is_counted = event.at <= self.seconds
        if id in self.chat:
            self._take_chat(self.chat[id], event)
            return
        flight = self.flights[id]
        if isinstance(event, FirstToken):
            flight.first_token_at = event.at
            self._policy.ticket_first_token(flight)
            return
        del self.flights[id]
        if isinstance(event, Finished):
            if is_counted:
                self.tally.tickets += 1
                self.tally.ticket_tokens += flight.ticket.tokens
                self.tally.ticket_prompt_tokens += flight.ticket.prompt_tokens
            self._policy.ticket_ended(flight)
        elif isinstance(event, Aborted):
            self.tally.wasted_tokens += (event.prefilled_tokens + event.output_tokens) * is_counted
            self.tally.pull_backs[flight.asked_back_at] = event.at

    def _take_chat(self, chat: Chat, event: Event) -> None:
        if isinstance(event, FirstToken):
            self._unanswered -= 1
            chat.first_token_at = event.at
            self.tally.ttfts_seconds.append(event.at - chat.arrival.at)
            self._policy.chat_first_token(chat)
        elif isinstance(event, Finished):
            del self.chat[chat.id]
            self._policy.chat_ended(chat)
