"""How much of a pool a batch request may find taken when it asks: pure, the same rule as in `lua/acquire_batch.lua`."""

import math

from scheduler.capacity import Amount, PoolCapacity
from scheduler.permit import PublishedLimit

HORIZONS_SECONDS = (1.0, 3.0, 10.0, 30.0)  # for which the chat's rise is foreseen; between them it is interpolated
DRAIN_SECONDS = 0.5  # the longest time for which arrivals are held free: later ones find what has ended by then
RESERVE_DEVIATIONS = 1.5  # over the mean of a Poisson count: about 93 of 100 such counts lie under it


def headroom(
    capacity: PoolCapacity, published: PublishedLimit, chat: Amount, own_slots: int, expected_seconds: float
) -> Amount:
    """The most batch may hold, a request that lasts `expected_seconds` included, for the chat to find its room.

    What chat is expected to rise to while the request lasts, and a reserve for those that arrive before one of
    `own_slots` ends, are kept free: m + z sqrt(m) with m = arrivals in that time. Never under the floor.
    """
    outlook = published.outlook
    rise_slots, rise_tokens = _rise(outlook.rises, expected_seconds)
    drain_seconds = min(expected_seconds / max(1, own_slots), DRAIN_SECONDS)
    mean = outlook.arrivals_milli / 1000 * drain_seconds
    reserve = max(float(outlook.reserve), mean + RESERVE_DEVIATIONS * math.sqrt(mean))
    later_slots = min(chat.slots + rise_slots, max(chat.slots, outlook.high.slots))
    later_tokens = min(chat.tokens + rise_tokens, max(chat.tokens, outlook.high.tokens))
    room = Amount(
        math.floor(capacity.total.slots - later_slots - reserve),
        math.floor(capacity.total.tokens - later_tokens - reserve * outlook.request_tokens),
    )
    return room.at_most(published.limit).at_least(capacity.floor)


def _rise(rises: tuple[Amount, ...], seconds: float) -> tuple[float, float]:
    """How far chat rises within `seconds`, on both axes: linear between the horizons, level beyond the last."""
    before_seconds, before_slots, before_tokens = 0.0, 0.0, 0.0
    for horizon_seconds, rise in zip(HORIZONS_SECONDS, rises, strict=False):
        if seconds < horizon_seconds:
            share = (seconds - before_seconds) / (horizon_seconds - before_seconds)
            return (
                before_slots + (rise.slots - before_slots) * share,
                before_tokens + (rise.tokens - before_tokens) * share,
            )
        before_seconds, before_slots, before_tokens = horizon_seconds, rise.slots, rise.tokens
    return before_slots, before_tokens
