"""How much batch may hold: the pure estimator behind the published limit.

Feed-forward first: it tells the ledger what the chat will need, and the ledger keeps that free at each ask (headroom,
prefill window, first-token gate). Feedback second: where the chat suffered while batch held more than its floor, batch
goes back to its floor at once, and one more slot is kept free until it has been calm for a while.
"""

import math
from dataclasses import dataclass
from enum import StrEnum

from scheduler.capacity import Amount, PoolCapacity
from scheduler.headroom import headroom
from scheduler.history import ChatHistory
from scheduler.permit import Outlook, PublishedLimit
from scheduler.signals.load import Load

RATE_SECONDS = 5.0  # the arrival rate follows within this
PREFILL_SECONDS = 0.05  # what batch may have on its way to a first token, as the engine's time
BESIDE_SECONDS = 0.03  # and of that, what may come beside a chat request that waits for its own first token
AHEAD_SECONDS = 0.15  # and what may be left of it in front of a chat request: about one step of an engine
TARGET_SHARE = 0.25  # none may take more of the TTFT target
CALM_SECONDS = 3.0  # without a new break, before batch may rise from its floor
COHORT_SECONDS = 10.0  # one step of the reserve for all that was in flight together
EASE_SECONDS = 60.0  # without a new break, before the reserve goes down by one step
STEP_SHARE = 0.05  # of the slots, in one step of the reserve: one of 20


class Rule(StrEnum):
    """What keeps batch where it is."""

    DEDICATED = "dedicated"  # the pool is batch's own
    BLIND = "blind"  # nothing tells of the chat
    CLOSED = "closed"  # outside the hours in which the shared part is open
    HOLDOUT = "holdout"  # a minute in which batch stays at its floor, to see what it costs the chat
    TTFT = "ttft"  # a chat request got its first token later than the target, or still waits
    CONGESTION = "congestion"  # requests queue at the engine
    HEADROOM = "headroom"  # what chat holds and will hold, and the reserve
    MAXIMUM = "maximum"  # the protected and all of the shared part


@dataclass(frozen=True, slots=True)
class Decision:
    """A limit to publish; `room`: what it leaves a request like those in flight, `pull_back`: ask back what is over."""

    published: PublishedLimit
    rule: Rule
    room: Amount
    pull_back: bool


class Limit:
    """Decides for one pool, reading by reading. Times are seconds on any one clock that does not go back."""

    def __init__(self, capacity: PoolCapacity, ttft_target_seconds: float) -> None:
        self._capacity = capacity
        self._target_seconds = ttft_target_seconds
        self._history = ChatHistory()
        self._arrivals_per_second = 0.0
        self._request_tokens = 0.0
        self._read_at: float | None = None
        self._above_floor_at = -math.inf  # when batch last held more than its floor
        self._red_at = -math.inf
        self._red_rule = Rule.TTFT
        self._raised_at = self._eased_at = -math.inf  # the last steps of the reserve, up and down
        self._extra = 0  # slots of reserve, learned from breaks

    def decide(self, load: Load, now_seconds: float, *, is_open: bool = True, is_held_out: bool = False) -> Decision:
        """The limit that suits this reading.

        `is_open`: the hours let batch into the shared part; `is_held_out`: it stays at its floor, whatever the load.
        """
        capacity = self._capacity
        if capacity.is_dedicated:
            whole = PublishedLimit(capacity.total, capacity.total.tokens)
            return Decision(whole, Rule.DEDICATED, capacity.total, pull_back=False)
        self._take_in(load, now_seconds)
        self._judge(load, now_seconds)
        is_red = now_seconds - self._red_at < CALM_SECONDS
        # The rule's name tells the report which minutes to compare, so it does not give way to what the load was then.
        if is_held_out and is_open and not load.is_blind:
            return self._at_floor(load, Rule.HOLDOUT, pull_back=is_red)
        if is_red:
            return self._at_floor(load, self._red_rule, pull_back=True)
        if not is_open:
            return self._at_floor(load, Rule.CLOSED, pull_back=False)
        published = PublishedLimit(capacity.most_batch, *self._prospect(load))
        room = self._room(published, load)
        return Decision(
            published, Rule.MAXIMUM if room == capacity.most_batch else Rule.HEADROOM, room, pull_back=False
        )

    # --- feed-forward

    def _take_in(self, load: Load, now: float) -> None:
        since, self._read_at = self._read_at, now
        if load.is_blind:  # what is not seen is not quiet
            return
        self._history.add(now, load.in_flight)
        if load.in_flight.slots > 0:
            mean = load.in_flight.tokens / load.in_flight.slots
            self._request_tokens += (mean - self._request_tokens) * (0.1 if self._request_tokens else 1.0)
        if since is not None and now > since:
            seconds = now - since
            weight = 1 - math.exp(-seconds / RATE_SECONDS)
            self._arrivals_per_second += (load.arrivals / seconds - self._arrivals_per_second) * weight

    def _prospect(self, load: Load) -> tuple[int, Outlook]:
        """The prefill window in tokens, and what is expected of the chat."""
        rate = load.prefill_rate or 0.0
        # Behind many engines a chat request waits for the prompts of its own alone, and there is always one that waits.
        of_all = max(rate, load.prefilled_per_second) if rate else 0.0
        longest_seconds = self._target_seconds * TARGET_SHARE
        high = self._history.high()
        arrivals_milli = round(self._arrivals_per_second * 1000)
        is_quiet = high.slots == 0 and arrivals_milli == 0
        return round(of_all * min(PREFILL_SECONDS, longest_seconds)), Outlook(
            high=high,
            rises=self._history.rises(),
            arrivals_milli=arrivals_milli,
            request_tokens=round(self._request_tokens),
            reserve=(0 if is_quiet else 1) + self._extra,
            prefill_rate=round(rate),
            prefill_ahead_tokens=round(of_all * min(AHEAD_SECONDS, longest_seconds)),
            prefill_beside_tokens=round(of_all * min(BESIDE_SECONDS, longest_seconds)),
        )

    def _room(self, published: PublishedLimit, load: Load) -> Amount:
        own = load.batch_in_flight.slots
        return headroom(self._capacity, published, load.in_flight, own, load.batch_expected_seconds)

    # --- feedback

    def _judge(self, load: Load, now: float) -> None:
        """Find out whether batch has made the chat suffer, and go a step down or up with the reserve."""
        rule = Rule.BLIND if load.is_blind else self._broken(load, now)
        if not load.batch_in_flight.fits(self._capacity.floor):
            self._above_floor_at = now
        step = max(1, int(self._capacity.total.slots * STEP_SHARE))
        if rule is None:
            if now - max(self._red_at, self._eased_at) >= EASE_SECONDS:
                self._eased_at = now
                self._extra = max(0, self._extra - step)
            return
        self._red_at, self._red_rule = now, rule
        if rule is not Rule.BLIND and now - self._raised_at >= COHORT_SECONDS:
            self._raised_at = now
            self._extra = min(self._extra + step, self._capacity.shared.slots)

    def _broken(self, load: Load, now: float) -> Rule | None:
        if load.is_congested and self._above_floor_at >= now - CALM_SECONDS:
            return Rule.CONGESTION
        # While batch was at its floor it was not batch's doing: judged over the time in which the request waited.
        longest = max((*load.ttfts_seconds, load.oldest_waiting_seconds))
        return Rule.TTFT if longest > self._target_seconds and self._above_floor_at >= now - longest else None

    def _at_floor(self, load: Load, rule: Rule, *, pull_back: bool) -> Decision:
        prefill_tokens, outlook = self._prospect(load)
        floor = self._capacity.floor
        # One alone may be larger than the floor: asked back, the ledger would let it in again, and so for ever.
        is_over = load.batch_in_flight.slots > 1 and not load.batch_in_flight.fits(floor)
        return Decision(PublishedLimit(floor, prefill_tokens, outlook), rule, floor, pull_back=pull_back and is_over)
