"""What one worker process shows Prometheus: its calls to the models, what became of tickets, and what it holds now."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from jobs.job import Finish
from jobs.outcomes import Requeued
from workers.endpoint import Endpoint

SECONDS_BUCKETS = (0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0)
TTFT_BUCKETS = (0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0)


@dataclass(frozen=True, slots=True)
class Held:
    """What a process holds now: requests in flight by pool, jobs that wait for a permit, results not yet in SQL."""

    in_flight: Mapping[str, int]
    waiting: int
    unwritten: int


class Metrics(Collector):
    """The metrics of one worker process, in a registry of their own.

    `note` is told how each job ended; `endpoints` by the names of their pools and `held` are read at every scrape.
    """

    def __init__(self, endpoints: Mapping[str, Endpoint], held: Callable[[], Held]) -> None:
        self._endpoints = endpoints
        self._held = held
        self.registry = CollectorRegistry()
        self.registry.register(self)
        self._calls = self._counter("calls", "Calls to the model by how they ended.", "outcome")
        self._tokens = self._counter("tokens", "Tokens of all calls, as the engine counted them.", "kind")
        self._jobs = self._counter("jobs", "What became of tickets that were called.", "outcome")
        self._seconds = self._histogram("call_seconds", "A whole call, whatever became of it.", SECONDS_BUCKETS)
        self._ttft = self._histogram("ttft_seconds", "From the start of a call to its first token.", TTFT_BUCKETS)

    def note(self, finish: Finish) -> None:
        """Take note of how a job ended; of one that was never called nothing."""
        attempt, outcome = finish.attempt, finish.outcome
        if attempt is None:
            return
        self._calls.labels(attempt.pool, attempt.symptom or "answered").inc()
        self._tokens.labels(attempt.pool, "prompt").inc(attempt.usage.prompt_tokens)
        self._tokens.labels(attempt.pool, "completion").inc(attempt.usage.completion_tokens)
        self._seconds.labels(attempt.pool).observe(attempt.seconds)
        if attempt.ttft_seconds is not None:
            self._ttft.labels(attempt.pool).observe(attempt.ttft_seconds)
        is_yield = isinstance(outcome, Requeued) and outcome.is_yield
        self._jobs.labels(attempt.pool, "yielded" if is_yield else type(outcome).__name__.lower()).inc()

    def collect(self) -> Iterator[Metric]:
        """What is held now, and what is known of the pools."""
        held = self._held()
        in_flight = _gauge("in_flight", "Requests at the model now.", "pool")
        error = _gauge("estimate_error_ratio", "How far the estimates of prompt tokens are off, on average.", "pool")
        too_low = _gauge("estimate_too_low_ratio", "The share of them that were too low.", "pool")
        count = CounterMetricFamily(
            "tickets_batch_worker_estimates", "Estimates compared with the engine's count.", labels=["pool"]
        )
        blocked = _gauge("blocked", "1 while this process sends the pool nothing but probes.", "pool")
        for name, endpoint in self._endpoints.items():
            in_flight.add_metric([name], held.in_flight.get(name, 0))
            report = endpoint.estimator.report()
            count.add_metric([name], report.count)
            if report.count:
                error.add_metric([name], report.mean_error)
                too_low.add_metric([name], report.too_low_share)
            blocked.add_metric([name], endpoint.health.blocked is not None)
        waiting = _gauge("waiting", "Tickets taken from the table that wait for a permit.")
        waiting.add_metric([], held.waiting)
        unwritten = _gauge("unwritten", "Results that are not in SQL yet.")
        unwritten.add_metric([], held.unwritten)
        yield from (in_flight, waiting, unwritten, error, too_low, count, blocked)

    def _counter(self, name: str, words: str, label: str) -> Counter:
        return Counter(f"tickets_batch_worker_{name}", words, ["pool", label], registry=self.registry)

    def _histogram(self, name: str, words: str, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(f"tickets_batch_worker_{name}", words, ["pool"], buckets=buckets, registry=self.registry)


def _gauge(name: str, words: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"tickets_batch_worker_{name}", words, labels=labels)
