"""What of an engine's load is chat: what it holds and counts, without our own. Pure."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace

from scheduler.signals.replicas import Scrape

IN_A_ROW = 2
JUST_OVER = 1.001


@dataclass(frozen=True, slots=True)
class Own:
    """What is ours beside the engine's figures: the most permits that batch held or had draining around the scrape, our
    requests still waiting for a first token, and how many first tokens of ours have come so far, how many of them late.

    Our probes are among all of these.
    """

    most_slots: int = 0
    waiting: int = 0
    first_tokens: int = 0
    late: int = 0


@dataclass(frozen=True, slots=True)
class Observed:
    """The chat as the engines show it; `arrivals` and `ttfts_seconds` are of this scrape."""

    slots: int = 0
    waiting: int = 0
    arrivals: int = 0
    ttfts_seconds: tuple[float, ...] = ()
    is_congested: bool = False


class Surplus:
    """How much one counter outruns another that tells of a part of the same.

    The part may be told a moment earlier or later than the whole: what it is ahead is made up for first, but only as
    far as the last two rounds explain it, or one miscount would hide all that comes after.
    """

    def __init__(self) -> None:
        self._whole = self._part = 0
        self._balance = 0
        self._part_before = 0

    def take(self, whole: int, part: int) -> int:
        """Both counters as they stand now; what the whole has gained beyond the part."""
        gained, own = max(0, whole - self._whole), max(0, part - self._part)
        self._whole, self._part = whole, part
        balance = self._balance + gained - own
        self._balance = min(0, max(balance, -(own + self._part_before)))
        self._part_before = own
        return max(0, balance)


class Observer:
    """Takes one scrape of all engines of a pool after the other."""

    def __init__(self, target_seconds: float) -> None:
        self._target_seconds = target_seconds
        self._slots: deque[int] = deque(maxlen=IN_A_ROW)
        self._waiting: deque[int] = deque(maxlen=IN_A_ROW)
        self._congestion: deque[int] = deque(maxlen=IN_A_ROW)
        self._arrivals = Surplus()
        self._late = Surplus()
        self._ttft = (0, 0.0)
        self._before: Observed | None = None

    def take(self, scrapes: Sequence[Scrape], totals: Sequence[Scrape], own: Own) -> Observed:
        """`scrapes` are of the engines that can be read now; `totals` the last of each, whose counters never fall."""
        self._slots.append(max(0, sum(each.running + each.waiting for each in scrapes) - own.most_slots))
        self._waiting.append(max(0, sum(each.waiting for each in scrapes) - own.waiting))
        self._congestion.append(max(0, sum(each.waiting_for_room for each in scrapes) - own.waiting))
        arrivals, ttfts = self._first_tokens(totals, own)
        queue_seconds = max((each.queue_seconds or 0.0 for each in scrapes), default=0.0)
        is_waiting = len(self._congestion) == IN_A_ROW and min(self._congestion) > 0
        observed = Observed(
            slots=min(self._slots),
            waiting=min(self._waiting),
            arrivals=arrivals,
            ttfts_seconds=ttfts,
            is_congested=is_waiting or queue_seconds > self._target_seconds / 2,
        )
        before, self._before = self._before, observed
        if before is None:  # what came before we looked is no news
            return replace(observed, arrivals=0, ttfts_seconds=())
        if not any(each.counts_first_tokens for each in totals):
            return replace(observed, arrivals=max(0, observed.slots - before.slots))
        return observed

    def _first_tokens(self, totals: Sequence[Scrape], own: Own) -> tuple[int, tuple[float, ...]]:
        """How many of chat came, and how long they took: late ones that are surely chat's just over the target, the
        others at the mean of all classes, at most at it; engines do not label them.
        """
        count = sum(each.first_tokens for each in totals)
        seconds = sum(each.ttft_seconds for each in totals)
        arrivals = self._arrivals.take(count, own.first_tokens)
        late = min(arrivals, self._late.take(sum(each.late for each in totals), own.late))
        (count_before, seconds_before), self._ttft = self._ttft, (count, seconds)
        mean = (seconds - seconds_before) / max(1, count - count_before)
        target = self._target_seconds
        return arrivals, (max(mean, target * JUST_OVER),) * late + (min(mean, target),) * (arrivals - late)
