"""What the gateway counts, for Prometheus."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from gateway.door import Door
from gateway.outcome import Outcome

TTFT_BUCKETS = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0)


class Metrics:
    """The metrics of one gateway, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        requests = self._counter("requests", "Chat and completion requests by what became of them.", ["outcome"])
        # Looked up once: by its labels a child costs more than the rest of the counting.
        self._by_outcome = {outcome: requests.labels(outcome) for outcome in Outcome}
        self.passed = self._counter("passed", "Requests for other paths, passed through without admission.")
        self.admitted_open = self._counter("admitted_open", "Requests let in unasked while Redis was away.")
        self.ttft = Histogram(
            "tickets_batch_gateway_ttft_seconds",
            "From the arrival of a streaming request to its first text.",
            buckets=TTFT_BUCKETS,
            registry=self.registry,
        )
        self._in_flight = self._gauge("in_flight", "Chat requests at the model now.")
        self._waiting = self._gauge("waiting", "Chat requests that wait at the door for room now.")
        self._redis_away = self._gauge("redis_away", "1 while Redis does not answer and chat is let in unasked.")

    def count(self, outcome: Outcome) -> None:
        """One chat request is over."""
        self._by_outcome[outcome].inc()

    def watch(self, pool: str, door: Door) -> None:
        """Read what the door of a pool knows whenever somebody asks."""
        self._in_flight.labels(pool).set_function(lambda: door.in_flight)
        self._waiting.labels(pool).set_function(lambda: door.waiting)
        self._redis_away.labels(pool).set_function(lambda: door.is_away)

    def page(self) -> bytes:
        """The text that Prometheus scrapes."""
        return generate_latest(self.registry)

    def _counter(self, name: str, words: str, labels: list[str] | None = None) -> Counter:
        return Counter(f"tickets_batch_gateway_{name}", words, labels or [], registry=self.registry)

    def _gauge(self, name: str, words: str) -> Gauge:
        return Gauge(f"tickets_batch_gateway_{name}", words, ["pool"], registry=self.registry)
