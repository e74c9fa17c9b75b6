"""What the scheduler shows Prometheus: of itself always, of batches and pools only while it leads."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from prometheus_client import CollectorRegistry, Counter
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from scheduler.batch_metrics import OpenBatches, batch_families
from scheduler.pool_metrics import pool_families
from scheduler.pool_reading import PoolReading

POOLS_SECONDS = 10.0  # what was read earlier is not shown: nothing is better than what is no longer so
BATCHES_SECONDS = 60.0


class Metrics(Collector):
    """The metrics of one scheduler, in a registry of their own.

    `leads` is asked at every scrape. `show_pools` and `show_batches` may be called from other threads.
    """

    def __init__(
        self,
        ttft_targets_seconds: Mapping[str, float],
        leads: Callable[[], bool],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ttft_targets_seconds = ttft_targets_seconds
        self._leads = leads
        self._monotonic = monotonic
        self._pools: tuple[float, Sequence[PoolReading]] = (monotonic(), ())
        self._batches: tuple[float, OpenBatches | None] = (monotonic(), None)
        self.registry = CollectorRegistry()
        self.registry.register(self)
        self.reaped = Counter(
            "tickets_batch_scheduler_reaped",
            "Tickets taken back from workers whose lease ran out.",
            registry=self.registry,
        )

    def show_pools(self, pools: Sequence[PoolReading]) -> None:
        """This is what the ledgers say now."""
        self._pools = (self._monotonic(), pools)

    def show_batches(self, seen: OpenBatches) -> None:
        """This is what SQL says now."""
        self._batches = (self._monotonic(), seen)

    def collect(self) -> Iterator[Metric]:
        """All families, at every scrape."""
        leads = self._leads()
        yield GaugeMetricFamily(
            "tickets_batch_scheduler_leads", "1 for the scheduler that leads, 0 for one that stands by.", value=leads
        )
        now = self._monotonic()
        pools_at, pools = self._pools
        batches_at, batches = self._batches
        yield from pool_families(pools if leads and now - pools_at < POOLS_SECONDS else (), self._ttft_targets_seconds)
        yield from batch_families(batches if leads and now - batches_at < BATCHES_SECONDS else None)
