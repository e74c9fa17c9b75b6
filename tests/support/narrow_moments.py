"""Scenes at one pool, each from quiet to a moment in which one token or one millisecond makes the difference."""

import random
from itertools import accumulate
from typing import Any

from scheduler.book import FLOOR_HOLD_MS
from scheduler.capacity import Amount, PoolCapacity
from scheduler.headroom import HORIZONS_SECONDS, headroom
from scheduler.permit import Ask, Kind, Outlook, PublishedLimit
from scheduler.pull_back import DRAINER_MS, SOON_MS, SPARE_MS

Move = tuple[Any, ...]
QUIET: Move = ("wait", 10_000)  # every lease has run out by then
EDGES_MS = (SOON_MS, SPARE_MS, DRAINER_MS)
POOL = PoolCapacity(Amount(12, 9_000), Amount(2, 1_000), Amount(2, 900))


class NarrowMoments:
    """Scenes of one pool that begin alike; which comes next, and on which side of its edge, is drawn."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._scenes = [
            self._expires, self._floor, self._rises, self._rises, self._high, self._observed, self._leaving,
            self._spared, self._steps, self._goodbye,
        ]  # fmt: skip

    def next(self) -> list[Move]:
        """The moves of one scene."""
        return [QUIET, *self._rng.choice(self._scenes)()]

    def _expires(self) -> list[Move]:
        """A limit stands for as long as was said."""
        publish: Move = ("publish", POOL.total, 99_000, 700, 1, Outlook())
        return [publish, *_batch(*[Ask(10, 10)] * 3), ("wait", 700 - self._edge()), *_batch(Ask(10, 10))]

    def _floor(self) -> list[Move]:
        """Of its floor batch has just as much as is its own, and just as soon, whatever the chat is expected to do."""
        first = Ask(self._rng.choice([1, 100]), 1)
        left = POOL.floor.tokens - first.amount.tokens + self._edge()
        busy = Outlook(high=POOL.total, request_tokens=900, reserve=self._rng.choice([0, 50]))
        wait: Move = ("wait", self._rng.choice([0, FLOOR_HOLD_MS - 1, FLOOR_HOLD_MS]))
        prompt = min(left - 1, self._rng.choice([10, 50, 51]))
        prefill = self._rng.choice([0, 150, 9_000])
        return [_publish(busy, prefill), *_batch(first), wait, *_batch(Ask(prompt, left - prompt))]

    def _rises(self) -> list[Move]:
        """The chat rises just so far that a ticket has room, between two horizons too."""
        seconds = self._rng.choice([0.0, *HORIZONS_SECONDS]) + self._rng.choice([0, 0.3, 0.7, 1.9])
        rises = tuple(accumulate(Amount(self._rng.randrange(2), self._rng.randrange(900)) for _ in HORIZONS_SECONDS))
        return self._in_headroom(Outlook(high=POOL.total, rises=rises), seconds, Amount(2, 600))

    def _high(self) -> list[Move]:
        """The chat holds more or less than in busy moments, and a reserve is kept free."""
        high = self._rng.choice([Amount(1, 100), Amount(3, 1_500), Amount(4, 2_500)])
        rises = self._rng.choice([(), (Amount(1, 900), Amount(2, 1_800), Amount(3, 2_700), Amount(4, 3_600))])
        outlook = Outlook(high, self._rng.choice([0, 9_000]), 300, self._rng.choice([0, 1, 2]), rises=rises)
        return self._in_headroom(outlook, self._rng.choice([0.2, 1.2, 40.0]), Amount(2, 1_200))

    def _in_headroom(self, outlook: Outlook, seconds: float, chat: Amount) -> list[Move]:
        """Beside `chat` and one ticket, one that just fits or is a token too large."""
        first = Ask(1, 1, 9_000)
        room = headroom(POOL, PublishedLimit(POOL.total, 0, outlook), chat, 1, seconds)
        left = room.tokens - first.amount.tokens + self._edge()
        each = Ask(chat.tokens // chat.slots - 10, 10, streamed=False)
        return [
            _publish(outlook),
            *[("acquire", Kind.INTERACTIVE, each)] * chat.slots,
            *_batch(first, Ask(1, left - 1, round(1_000 * seconds))),
        ]

    def _observed(self) -> list[Move]:
        """What was seen at the engine is believed for as long as was said."""
        seen = Amount(self._rng.choice([2, 10, 11]), 7_000)
        wait: Move = ("wait", 500 - self._edge())
        left = POOL.total.tokens - seen.tokens + self._edge()
        return [_publish(Outlook()), ("observe", seen, 500), wait, *_batch(Ask(1, 1), Ask(1, left - 3))]

    def _leaving(self) -> list[Move]:
        """Chat needs what some are about to give back by themselves, or a token more."""
        tickets = _batch(*[Ask(50, 250, 9_000)] * 4, *[Ask(50, 250, SOON_MS + 40)] * 2)
        stay = Amount(4, 1_200) - self._rng.choice([Amount(0, 1), Amount(1, 0), Amount(0, 0)])
        seen = POOL.total - self._rng.choice([Amount(12, stay.tokens), Amount(stay.slots, 9_000), stay])
        wait: Move = ("wait", 40 - self._edge())
        return [_publish(Outlook()), *tickets, wait, ("observe", seen, 500)]

    def _spared(self) -> list[Move]:
        """In front of a chat request are only tickets about to end; others have begun to write."""
        writing = _batch(*[Ask(10, 290, 9_000)] * 4)
        begun: list[Move] = [("first_token", n) for n in range(4)]
        ending = _batch(*[Ask(300, 40, SPARE_MS + 50)] * 2)
        wait: Move = ("wait", self._rng.choice([49, 50, 100]))
        return [_publish(Outlook(prefill_rate=300)), *writing, *begun, *ending, wait, _chat()]

    def _steps(self) -> list[Move]:
        """Prompts half read in front of a chat request, as many as may be or one token more."""
        rate, wait_ms = 300, self._rng.choice([0, 100, 333])
        begun: list[Move] = [("first_token", 0), ("first_token", 3)]
        gone: list[Move] = self._rng.choice([[], [("drain", 3, 9_000)]])
        most = self._rng.randrange(5) * (200 - wait_ms * rate // 1000) - self._edge()
        outlook = Outlook(prefill_rate=rate, prefill_ahead_tokens=max(0, most))
        own = _batch(*[Ask(200, 100, 9_000)] * 6)  # three of them are just the floor
        return [_publish(Outlook()), *own, *begun, *gone, ("wait", wait_ms), _publish(outlook), _chat()]

    def _goodbye(self) -> list[Move]:
        """Batch goes back to its floor, and one that was withdrawn is about to be gone from the engine."""
        own = _batch(*[Ask(10, 190, self._rng.choice(EDGES_MS) + self._edge() + 40)] * 8)
        back: list[Move] = [("wait", 40), ("revoke", POOL.floor), ("drain", 0, 700), ("wait", 700 - self._edge())]
        return [_publish(Outlook()), *own, *back, ("beat",)]

    def _edge(self) -> int:
        return self._rng.choice([0, 1])


def _publish(outlook: Outlook, prefill_tokens: int = 99_000) -> Move:
    return ("publish", POOL.total, prefill_tokens, 60_000, 1, outlook)


def _batch(*asks: Ask) -> list[Move]:
    return [("acquire", Kind.BATCH, ask) for ask in asks]


def _chat() -> Move:
    return ("acquire", Kind.INTERACTIVE, Ask(60, 40))
