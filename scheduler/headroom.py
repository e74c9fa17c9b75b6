"""How much of a pool a batch request may find taken when it asks: pure, and the same rule as in `lua/acquire.lua`."""

import math

from scheduler.capacity import Amount, PoolCapacity
from scheduler.permit import PublishedLimit

RISE_SECONDS = 20.0  # the chat goes this far, by 1 - 1/e, from what it holds now to what it holds in busy moments
DRAIN_SECONDS = 0.5  # the longest time for which arrivals are held free: later ones find what has ended by then
RESERVE_DEVIATIONS = 1.5  # over the mean of a Poisson count: about 93 of 100 such counts lie under it


def headroom(
    capacity: PoolCapacity, published: PublishedLimit, chat: Amount, own_slots: int, expected_seconds: float
) -> Amount:
    """The most batch may hold, a request that lasts `expected_seconds` included, for the chat to find its room.

    What chat is expected to hold while the request lasts, and a reserve for those that arrive before one of `own_slots`
    ends, are kept free: m + z sqrt(m) with m = arrivals in that time. Never under the floor.
    """
    outlook = published.outlook
    share = 1.0 - math.exp(-expected_seconds / RISE_SECONDS)
    drain_seconds = min(expected_seconds / max(1, own_slots), DRAIN_SECONDS)
    mean = outlook.arrivals_milli / 1000 * drain_seconds
    reserve = max(float(outlook.reserve), mean + RESERVE_DEVIATIONS * math.sqrt(mean))
    room = Amount(
        math.floor(capacity.total.slots - _expected(chat.slots, outlook.high.slots, share) - reserve),
        math.floor(
            capacity.total.tokens
            - _expected(chat.tokens, outlook.high.tokens, share)
            - reserve * outlook.request_tokens
        ),
    )
    return room.at_most(published.limit).at_least(capacity.floor)


def _expected(now: int, high: int, share: float) -> float:
    return now + max(0, high - now) * share
