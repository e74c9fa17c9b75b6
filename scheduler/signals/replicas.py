"""The engines behind one address, from the pages it shows one after the other."""

from dataclasses import dataclass, replace

from scheduler.signals.exposition import Histogram
from scheduler.signals.reading import Reading

REPLICA_SECONDS = 5.0  # how long an engine is still counted after its last page: a balancer shows another one meanwhile
SETTLE_SECONDS = 3.0  # so long must counters have gone forward only, where nothing tells the engines apart


@dataclass(frozen=True, slots=True)
class Scrape:
    """All engines of one address at one scrape.

    `first_tokens` counts since the first page, `late` those of them that took longer than the target, `ttft_seconds` is
    the sum over all. `queue_seconds` is the mean in the difference to the page before, None where nothing came.
    """

    running: int
    waiting: int
    waiting_for_room: int
    kv_usage: float | None = None
    first_tokens: int = 0
    late: int = 0
    ttft_seconds: float = 0.0
    queue_seconds: float | None = None
    counts_first_tokens: bool = False


@dataclass(slots=True)
class _Engine:
    reading: Reading
    at: float


class Replicas:
    """Pure. An address that shows one of several engines at a time is read right where their pages tell them apart.

    Where they do not, the counters seem to jump to and fro: a counter that goes back begins anew, nothing is made of
    differences until they have gone forward for a while, and `running` is that of one engine at a time.
    """

    def __init__(self, target_seconds: float) -> None:
        self._target_seconds = target_seconds
        self._engines: dict[float | None, _Engine] = {}
        self._trusted_after: float | None = None
        self._totals = Scrape(0, 0, 0)

    def take(self, reading: Reading, at_seconds: float) -> Scrape:
        """Add one page, read at a monotonic moment."""
        if self._trusted_after is None:
            self._trusted_after = at_seconds + SETTLE_SECONDS
        before = self._engines.get(reading.started_at)
        self._engines = {
            name: engine for name, engine in self._engines.items() if at_seconds - engine.at < REPLICA_SECONDS
        }
        self._engines[reading.started_at] = _Engine(reading, at_seconds)
        queue = self._since(reading.queue_time, before.reading.queue_time if before else None, reading, at_seconds)
        ttft = self._since(reading.ttft, before.reading.ttft if before else None, reading, at_seconds)
        readings = [engine.reading for engine in self._engines.values()]
        usages = [usage for usage in (each.kv_usage for each in readings) if usage is not None]
        self._totals = replace(
            self._totals,
            running=sum(each.running for each in readings),
            waiting=sum(each.waiting for each in readings),
            waiting_for_room=sum(each.waiting_for_room for each in readings),
            kv_usage=max(usages, default=None),
            first_tokens=self._totals.first_tokens + round(ttft.count if ttft else 0),
            late=self._totals.late + round(ttft.above(self._target_seconds) if ttft else 0),
            ttft_seconds=self._totals.ttft_seconds + (ttft.seconds if ttft else 0.0),
            queue_seconds=queue.seconds / queue.count if queue and queue.count else None,
            counts_first_tokens=reading.ttft is not None,
        )
        return self._totals

    def _since(
        self, now: Histogram | None, before: Histogram | None, reading: Reading, at_seconds: float
    ) -> Histogram | None:
        if now is None or before is None:
            return None
        difference = now.since(before)
        if reading.started_at is not None:
            return difference
        if difference is None:
            self._trusted_after = at_seconds + SETTLE_SECONDS
        return difference if at_seconds >= (self._trusted_after or 0.0) else None
