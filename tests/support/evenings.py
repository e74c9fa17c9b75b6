"""Evenings at one pool, move by move: tickets of a few kinds, chat in bursts, and narrow moments.

A narrow moment is one in which a single token or millisecond more makes the difference: the book shows where it lies.
Random histories alone hardly ever meet one.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any

from scheduler.book import FLOOR_HOLD_MS, Book
from scheduler.capacity import NOTHING, Amount, PoolCapacity, total
from scheduler.headroom import HORIZONS_SECONDS, headroom
from scheduler.permit import Ask, Kind, Outlook, PublishedLimit
from scheduler.pull_back import DRAINER_MS, SOON_MS, SPARE_MS

Move = tuple[Any, ...]
Choice = Callable[[Book, int], list[Move]]
ALL = ("renew", set(range(60)))
HORIZONS_MS = [round(1000 * seconds) for seconds in HORIZONS_SECONDS]
EDGES_MS = (SOON_MS, SPARE_MS, DRAINER_MS)

POOLS = (
    PoolCapacity(Amount(12, 9_000), Amount(4, 2_500), Amount(2, 900)),
    PoolCapacity(Amount(12, 9_000), Amount(4, 2_500), Amount(2, 1_500)),
    PoolCapacity(Amount(40, 9_000), Amount(6, 2_000), Amount(3, 400)),  # bound by tokens
    PoolCapacity(Amount(10, 60_000), Amount(3, 9_000), Amount(3, 300)),  # bound by slots
)
TICKETS = (Ask(150, 40, 300), Ask(150, 40, 900), Ask(700, 200, 6_000), Ask(2_000, 100, 3_000), Ask(400, 100))


@dataclass(slots=True)
class Evening:
    """One pool with two kinds of ticket."""

    rng: random.Random
    pool: PoolCapacity = field(init=False)
    tickets: list[Ask] = field(init=False)
    leader: int = 1

    def __post_init__(self) -> None:
        self.pool = self.rng.choice(POOLS)
        self.tickets = self.rng.sample(TICKETS, 2)

    def next(self, book: Book, now_ms: int) -> list[Move]:
        """What happens next, by the state of the book."""
        usual: list[Choice] = [self._tickets, self._chat, self._first_tokens, self._ends, self._words]
        narrow: list[Choice] = [
            self._narrow_ask, self._narrow_prompt, self._narrow_end, self._narrow_hold, self._narrow_lease,
            self._narrow_room, self._narrow_way, self._narrow_way, self._narrow_chat, self._narrow_truth,
            self._seldom, *[self._narrow_headroom] * 3,
        ]  # fmt: skip
        weights = [4, 2, 2, 2, 2] + [1] * len(narrow)
        return self.rng.choices(usual + narrow, weights)[0](book, now_ms)

    # --- an evening as it is

    def _tickets(self, *_: object) -> list[Move]:
        return [("acquire", Kind.BATCH, self.rng.choice(self.tickets))] * self.rng.randint(1, 5)

    def _chat(self, *_: object) -> list[Move]:
        ask = Ask(self.rng.choice([60, 300]), 100, streamed=self.rng.random() < 0.8)
        return [("acquire", Kind.INTERACTIVE, ask)] * self.rng.choice([1, 1, 4])

    def _first_tokens(self, *_: object) -> list[Move]:
        return [("first_token", self.rng.randrange(30)) for _ in range(self.rng.randint(1, 6))]

    def _ends(self, *_: object) -> list[Move]:
        some: list[Move] = [("release", self.rng.randrange(30)) for _ in range(self.rng.randint(1, 4))]
        some += [("drain", self.rng.randrange(12), self.rng.choice([300, 6_000])) for _ in range(self.rng.randrange(3))]
        return [*some, ("wait", self.rng.choice([10, 60, 200, 500, 1_001])), ALL]

    def _words(self, *_: object) -> list[Move]:
        rng = self.rng
        return [
            rng.choice(
                [
                    self._publish(self._outlook()),
                    self._publish(self._outlook()),
                    ("observe", Amount(rng.randrange(12), rng.randrange(rng.choice([200, 6_000]))), 500),
                    ("revoke", Amount(rng.randrange(8), rng.randrange(6_000))),
                    ("drain", rng.randrange(30), rng.choice([1, 300, 6_000])),
                    ("settle", rng.randrange(30), rng.randrange(1_500)),
                    ("beat",),
                ]
            )
        ]

    def _seldom(self, *_: object) -> list[Move]:
        """The ledger loses its memory, and its live holders come back; or somebody asks for rest."""
        live = [("register", n) for n in range(12)]
        self.rng.shuffle(live)
        return self.rng.choice(
            [
                [("restart",), *live, ("wait", self.rng.choice([100, 4_999, 5_000])), *live[:3], ALL],
                [
                    ("pause", self.rng.choice([200, 1_000])),
                    ("pause", 600),
                    ("wait", self.rng.choice([599, 600, 1_000])),
                ],
                [("refuse",), ("publish", NOTHING, 0, 400, self.rng.choice([0, 1, 2]), Outlook())],
            ]
        )

    # --- narrow moments

    def _narrow_ask(self, book: Book, now_ms: int) -> list[Move]:
        """A ticket that just fits beside what chat holds or owns, or into batch's floor, or is a token too large."""
        held = book.held(Kind.BATCH) + book.reclaiming()
        taken = book.interactive_use(now_ms).at_least(self.pool.protected_interactive)
        room = self.rng.choice([self.pool.total - taken, self.pool.floor])
        left = room.tokens - held.tokens + self.rng.choice([0, 1])
        return [("acquire", Kind.BATCH, Ask(1, left - 1))] if left > 1 else []

    def _narrow_headroom(self, book: Book, now_ms: int) -> list[Move]:
        """A ticket that just fits into what the chat is expected to leave, or is a slot or a token too large."""
        expected_ms = self.rng.choice([0, *HORIZONS_MS]) + self.rng.choice([0, 0, 400, 900])
        held, chat = book.held(Kind.BATCH) + book.reclaiming(), book.interactive_use(now_ms)

        def room(outlook: Outlook) -> Amount:
            published = PublishedLimit(self.pool.total, 0, outlook)
            return headroom(self.pool, published, chat, held.slots, expected_ms / 1000)

        outlook, tokens = self._outlook(), 2
        if self.rng.random() < 0.5:
            free = room(replace(outlook, reserve=0)).slots - held.slots - 1
            outlook = replace(outlook, reserve=max(0, free + self.rng.choice([0, 1])), request_tokens=0)
        else:
            outlook = replace(outlook, reserve=outlook.reserve + 1)
            tokens = room(outlook).tokens - held.tokens + self.rng.choice([0, 1])
        publish = ("publish", self.pool.total, 99_000, 60_000, self.leader, outlook)
        return [publish, ("acquire", Kind.BATCH, Ask(1, tokens - 1, expected_ms))] if tokens > 1 else [publish]

    def _narrow_chat(self, book: Book, now_ms: int) -> list[Move]:
        """A chat request that just fits beside batch's floor, or is a token too large for now, or for ever."""
        used = self.rng.choice([book.interactive_use(now_ms), NOTHING])
        left = self.pool.most_interactive.tokens - used.tokens + self.rng.choice([0, 1])
        return [("acquire", Kind.INTERACTIVE, Ask(1, left - 1)), ("release", 0)] if left > 0 else []

    def _narrow_truth(self, book: Book, now_ms: int) -> list[Move]:
        """A chat request turns out to need all that is left, or a token more."""
        used = book.interactive_use(now_ms) + book.held(Kind.BATCH)
        tokens = self.pool.total.tokens - used.tokens + self.rng.choice([0, 1])
        ask = ("acquire", Kind.INTERACTIVE, Ask(1, 1, streamed=False))
        return [ask, ("settle", 0, tokens), ("release", 0)] if tokens > 1 else []

    def _narrow_prompt(self, book: Book, now_ms: int) -> list[Move]:
        """A prompt that just fits beside those on their way."""
        left = book.limit(now_ms).prefill_tokens - book.prefill_tokens() + self.rng.choice([0, 1])
        return [("acquire", Kind.BATCH, Ask(left, 1))] if left > 0 else []

    def _narrow_end(self, book: Book, now_ms: int) -> list[Move]:
        """Somebody is asked back at the millisecond at which a ticket counts as about to end, or as late."""
        due = [e.at_ms + e.expected_ms for e in book.entries.values() if e.expected_ms and e.kind is Kind.BATCH]
        edges = [edge + more for edge in EDGES_MS for more in (0, 1)]
        waits = [moment + sign * edge - now_ms for moment in due for edge in edges for sign in (-1, 1)]
        waits = [wait for wait in waits if 0 <= wait < 4_000]
        if not waits:
            return []
        chat = ("acquire", Kind.INTERACTIVE, Ask(60, 100))
        refused = ("acquire", Kind.INTERACTIVE, Ask(0, self.pool.most_interactive.tokens))
        room = ("revoke", self.pool.floor + Amount(self.rng.randrange(4), self.rng.randrange(2_000)))
        asking: list[Move] = self.rng.choice([[chat] * 6, [refused], [room], [room]])
        return [ALL, ("wait", self.rng.choice(waits)), *asking, ALL]

    def _narrow_hold(self, book: Book, now_ms: int) -> list[Move]:
        """Batch asks for its floor at the millisecond at which it may have it again."""
        hold = self.rng.choice([book._waiting_since_ms, book._batch_at_ms]) + FLOOR_HOLD_MS - self.rng.choice([0, 1])
        ask = ("acquire", Kind.BATCH, Ask(self.rng.choice([10, 200]), 5, 300))
        return [ALL, ("wait", hold - now_ms), ask] if 0 <= hold - now_ms <= FLOOR_HOLD_MS else []

    def _narrow_lease(self, book: Book, now_ms: int) -> list[Move]:
        """A lease or a limit runs out, or has one millisecond to go."""
        ends = [e.expires_at_ms for e in book.entries.values()]
        ends += [book.published_until_ms, book.observed_until_ms, book.settled_at_ms]
        waits = [end - now_ms - early for end in ends for early in (0, 1) if 0 < end - now_ms < 6_000]
        return (
            [("wait", self.rng.choice(waits)), ("acquire", Kind.BATCH, self.rng.choice(self.tickets))] if waits else []
        )

    def _narrow_room(self, book: Book, now_ms: int) -> list[Move]:
        """Room for just those that stay when some have been asked back, or for a token less."""
        own = book._running(now_ms)
        if not own:
            return []
        leaving = [one for one in own if one.left_ms <= SOON_MS]
        stay = total(one.amount for one in own) - total(
            one.amount for one in self.rng.choice([leaving, own[-2:], own[:1]])
        )
        room = stay - Amount(self.rng.choice([0, 0, 1]), self.rng.choice([0, 0, 1]))
        room = self.rng.choice([room, Amount(99, room.tokens), Amount(room.slots, 99_000)])
        chat = (self.pool.total - room).at_least(NOTHING)
        return [self.rng.choice([("revoke", room), ("observe", chat, 300), ("observe", chat, 300)])]

    def _narrow_way(self, book: Book, now_ms: int) -> list[Move]:
        """A chat request that waits behind as many prompt tokens as it may, or behind one more."""
        rate = self.rng.choice([300, 777, 3_333])
        due = [e.at_ms + e.expected_ms - SPARE_MS for e in book.entries.values() if not e.has_first_token]
        spared = [moment - early - now_ms for moment in due for early in (0, 1, -60)]
        wait_ms = self.rng.choice([0, 7, 33, 90, *(wait for wait in spared if 0 <= wait < 1_000)])
        then = now_ms + wait_ms
        own = [one for one in book._running(then) if not one.has_first_token]
        to_go = [max(0, one.prompt_tokens - one.age_ms * rate // 1000) for one in own]
        if not sum(to_go):
            return self._tickets()
        most = sum(to_go[: self.rng.randint(0, len(to_go))]) - self.rng.choice([0, 1])
        outlook = Outlook(prefill_rate=rate, prefill_ahead_tokens=max(0, most))
        return [self._publish(outlook), ("wait", wait_ms), ("acquire", Kind.INTERACTIVE, Ask(60, 40))]

    def _outlook(self) -> Outlook:
        """High enough for tokens to bind in some evenings, slots in others."""
        rng = self.rng
        rises = tuple(accumulate(Amount(rng.randrange(4), rng.randrange(1_200)) for _ in HORIZONS_SECONDS))
        return Outlook(
            high=Amount(rng.randrange(9), rng.randrange(rng.choice([1, 300, 5_000]))),
            arrivals_milli=rng.choice([0, 2_000, 9_000]),
            request_tokens=rng.choice([0, 300]),
            reserve=rng.randrange(3),
            prefill_rate=rng.choice([0, 4_000]),
            prefill_ahead_tokens=400,
            prefill_beside_tokens=rng.choice([0, 60, 200, 700]),
            rises=rng.choice([(), rises, rises]),
        )

    def _publish(self, outlook: Outlook) -> Move:
        whole, ttl_ms = self.pool.most_batch, self.rng.choice([60_000, 60_000, 900])
        limit = self.rng.choice([whole, whole, self.pool.floor + Amount(2, 700), Amount(99, 99_000)])
        return ("publish", limit, self.rng.choice([0, 400, 9_000, 9_000]), ttl_ms, self.leader, outlook)
