"""Who admits in production: the ledger's rules and the limit, asked as gateway, workers and control loop ask them."""

import random
from dataclasses import replace

from scheduler.book import Book
from scheduler.duration import DurationEstimator
from scheduler.limit import Decision, Limit
from scheduler.permit import Ask, Kind, Reason
from scheduler.signals.combine import Report, combine
from scheduler.signals.differences import Differences, Prefilled
from scheduler.signals.load import Load, SourceAge
from scheduler.signals.own import OwnRequests
from scheduler.simulation.world import Chat, Flight, Policy, World

ASK_AGAIN_SECONDS = 0.05  # after a refusal, unless one of our own comes back first
TICK_SECONDS = 0.5  # of the control loop
LIMIT_MS = 3000
CLOSE_SECONDS = 0.005  # from a revocation in the ledger to the closed request at the engine
DRAIN_MS = 300  # a withdrawn one stays counted for so long: nobody tells when the engine let go of it
ROUNDING_SECONDS = 1e-6  # so that the ledger's whole millisecond has come
LEASE_MS = 1 << 40  # nobody dies here, so no lease runs out and nothing is renewed


class Admission(Policy):
    """Chat and tickets take permits from the `Book`; every half second the limit is decided anew from its state."""

    def __init__(self, priority: int = 0, seed: int = 0) -> None:
        self._priority = priority
        self._rng = random.Random(seed)

    def begin(self, world: World) -> None:
        super().begin(world)
        site = world.site
        self.book = Book(site.capacity, LEASE_MS)
        self._limit = Limit(site.capacity, site.ttft_target_seconds)
        self._durations = DurationEstimator()
        self._differences = Differences()
        self._requests = OwnRequests(site.ttft_target_seconds)
        self._prefilled = Prefilled()
        self._ask_at = 0.0
        self._refused_in: tuple[int | bool, ...] | None = None  # the ledger's version, where it only lacks room
        self._is_idle = False  # until that becomes another one, asking is in vain
        self._tick()

    # --- chat

    def admits_chat(self, chat: Chat) -> bool:
        ask = Ask(chat.arrival.prompt_tokens, chat.arrival.output_tokens)
        refusal, victims = self.book.acquire(chat.id, Kind.INTERACTIVE, ask, self._now_ms())
        self._pull_back(victims)
        return refusal is None

    def chat_first_token(self, chat: Chat) -> None:
        self.book.first_token(chat.id, self._now_ms())

    def chat_ended(self, chat: Chat) -> None:
        self.book.release(chat.id, self._now_ms())

    # --- tickets

    def ticket_first_token(self, flight: Flight) -> None:
        self.book.first_token(flight.id, self._now_ms())

    def ticket_ended(self, flight: Flight) -> None:
        ticket, began, first = flight.ticket, flight.started_at, flight.first_token_at
        ttft_seconds = None if first is None else first - began
        self._durations.learn(
            ticket.prompt_tokens, ticket.output_tokens, ticket.longest_output, self.world.now - began, ttft_seconds
        )
        self.book.release(flight.id, self._now_ms())
        self._ask_now()

    def pump(self) -> None:
        if self._is_idle:
            if self.book.version(self._now_ms()) == self._refused_in:
                return
            self._skip_asks()
            self.world.call_at(self._ask_at, _nothing)
        if self.world.now < self._ask_at:
            return
        while self._start_one():
            pass
        self._ask_at = self.world.now + self._pause_seconds()
        self._is_idle = self._refused_in is not None
        if not self._is_idle:
            self.world.call_at(self._ask_at, _nothing)

    def _ask_now(self) -> None:
        self._skip_asks()
        self._ask_at = self.world.now

    def _skip_asks(self) -> None:
        """No longer idle: the asks until now were in vain, but the next one comes when it would have come."""
        while self._is_idle and self._ask_at < self.world.now:
            self._ask_at += self._pause_seconds()
        self._is_idle = False

    def _pause_seconds(self) -> float:
        return ASK_AGAIN_SECONDS * (0.5 + self._rng.random())

    def _start_one(self) -> bool:
        """Start a ticket, or give one up that is too large for ever; False where none may start now."""
        lacks_room = True
        for ticket in self.world.tickets.candidates():
            seconds = self._durations.predict(ticket.prompt_tokens, ticket.longest_output)
            ask = Ask(ticket.prompt_tokens, ticket.longest_output, round(seconds * 1000))
            name = self.world.next_flight
            refusal, _ = self.book.acquire(name, Kind.BATCH, ask, self._now_ms())
            if refusal is None:
                self.world.start(ticket, self._priority)
                return True
            if refusal.reason is Reason.TOO_LARGE:
                self.world.give_up(ticket)
                return True
            lacks_room = lacks_room and refusal.reason in (Reason.LIMIT, Reason.PROTECTED)
        self._refused_in = self.book.version(self._now_ms()) if lacks_room else None
        return False

    def _pull_back(self, tokens: list[str]) -> None:
        if tokens:
            asked_at = self.world.now
            self.world.call_at(asked_at + CLOSE_SECONDS, lambda: self._close(tokens, asked_at))

    def _close(self, tokens: list[str], asked_at: float) -> None:
        for token in tokens:
            if flight := self.world.flights.get(token):
                self.world.withdraw(flight, asked_at)
                self.book.drain(token, DRAIN_MS, self._now_ms())
                self._ask_now()
                # What it held is free again then, which nobody else tells.
                self.world.call_at((self._now_ms() + DRAIN_MS) / 1000 + ROUNDING_SECONDS, _nothing)

    # --- the control loop

    def is_open(self) -> bool:
        """Whether the pool's hours let batch into the shared part now."""
        return True

    def is_held_out(self) -> bool:
        """Whether batch is to stay at its floor now, whatever the load."""
        return False

    def decided(self, decision: Decision) -> None:
        """Take note of what was decided for the next half second."""

    def _tick(self) -> None:
        decision = self._limit.decide(
            self._load(), self.world.now, is_open=self.is_open(), is_held_out=self.is_held_out()
        )
        self.book.publish(decision.published, LIMIT_MS, 1, self._now_ms())
        self.decided(decision)
        if decision.pull_back:
            self._pull_back(self.book.revoke(self.world.site.capacity.floor, self._now_ms()))
        self.world.call_at(self.world.now + TICK_SECONDS, self._tick)

    def _load(self) -> Load:
        """What the control loop reads where the ledger is the only signal."""
        snapshot = self.book.snapshot(self._now_ms())
        news = self._differences.take(snapshot)
        self._requests.take(news.batch, self.world.now)
        self._prefilled.take(news.prompt_tokens, self.world.now)
        ledger = Report(
            (SourceAge("ledger", 0.0, is_fresh=True),),
            in_flight=snapshot.interactive,
            waiting=snapshot.interactive_waiting,
            oldest_waiting_seconds=snapshot.oldest_waiting_seconds,
            arrivals=news.arrivals,
            ttfts_seconds=news.chat_ttfts_seconds,
            is_exact=True,
        )
        return replace(
            combine([ledger, Report(is_congested=self._requests.is_congested(self.world.now))], is_dedicated=False),
            batch_in_flight=snapshot.batch,
            batch_expected_seconds=snapshot.batch_expected_seconds,
            prefill_rate=self._requests.prefill_rate,
            prefilled_per_second=self._prefilled.tokens_per_second,
        )

    def _now_ms(self) -> int:
        return int(self.world.now * 1000)


def _nothing() -> None:
    """Wakes the world, whose policy then asks again."""
