"""The engine's figures in Prometheus' text form, under the names that vLLM gives them."""

import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence

from scheduler.simulation.engine.core import EngineCore

# The bucket bounds are vLLM's own.
_TTFT = "0.001 0.005 0.01 0.02 0.04 0.06 0.08 0.1 0.25 0.5 0.75 1 2.5 5 7.5 10 20 40 80 160 640 2560"
_LATENCY = "0.3 0.5 0.8 1 1.5 2 2.5 5 10 15 20 30 40 50 60 120 240 480 960 1920 7680"
TTFT_BUCKETS_SECONDS = tuple(map(float, _TTFT.split()))
LATENCY_BUCKETS_SECONDS = tuple(map(float, _LATENCY.split()))


class Histogram:
    """Counts per bucket, with sum and count."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def lines(self, name: str, labels: str) -> Iterator[str]:
        total = 0
        for bound, count in zip((*self._bounds, "+Inf"), self._counts, strict=True):
            total += count
            yield f'{name}_bucket{{{labels},le="{bound}"}} {total}'
        yield f"{name}_count{{{labels}}} {total}"
        yield f"{name}_sum{{{labels}}} {self._sum!r}"


class EngineMetrics:
    """Counters and histograms since the start or the last reset; gauges are read from the core.

    As on a page of vLLM's, the time when all this began tells two engines behind one address apart.
    """

    def __init__(self, model: str) -> None:
        self._started_at = time.time()
        self._labels = f'engine="0",model_name="{model}"'
        self.ttft = Histogram(TTFT_BUCKETS_SECONDS)
        self.queue_time = Histogram(LATENCY_BUCKETS_SECONDS)
        self.latency = Histogram(LATENCY_BUCKETS_SECONDS)
        self.prompt_tokens = 0
        self.generation_tokens = 0
        self.cached_tokens = 0
        self.finished: Counter[str] = Counter()

    def render(self, core: EngineCore) -> bytes:
        """The whole page."""
        return ("\n".join(self._page(core)) + "\n").encode()

    def _page(self, core: EngineCore) -> Iterator[str]:
        labels = self._labels
        yield "# HELP process_start_time_seconds Start time of the process since unix epoch in seconds."
        yield "# TYPE process_start_time_seconds gauge"
        yield f"process_start_time_seconds {self._started_at!r}"
        waiting = float(core.waiting)
        gauges = (
            ("num_requests_running", "Requests in model execution batches.", "", float(core.running)),
            ("num_requests_waiting", "Requests waiting to be processed.", "", waiting),
            ("num_requests_waiting_by_reason", "Waiting requests by reason.", ',reason="capacity"', waiting),
            ("num_requests_waiting_by_reason", "", ',reason="deferred"', 0.0),
            ("kv_cache_usage_perc", "KV cache usage, 1 means 100 percent.", "", core.kv_usage),
        )
        for name, about, extra, value in gauges:
            if about:
                yield from (f"# HELP vllm:{name} {about}", f"# TYPE vllm:{name} gauge")
            yield f"vllm:{name}{{{labels}{extra}}} {value!r}"
        counters = (
            ("prompt_tokens_total", "Prefill tokens processed.", self.prompt_tokens),
            ("generation_tokens_total", "Generation tokens processed.", self.generation_tokens),
            ("prefix_cache_hits_total", "Prompt tokens found in the prefix cache.", self.cached_tokens),
            ("num_preemptions_total", "Preemptions: this engine makes none.", 0),
        )
        for name, about, count in counters:
            yield from (f"# HELP vllm:{name} {about}", f"# TYPE vllm:{name} counter")
            yield f"vllm:{name}{{{labels}}} {float(count)!r}"
        yield "# HELP vllm:request_success_total Requests that the engine has processed."
        yield "# TYPE vllm:request_success_total counter"
        for reason in ("stop", "length", "abort"):
            count = self.finished[reason]
            yield f'vllm:request_success_total{{{labels},finished_reason="{reason}"}} {float(count)!r}'
        histograms = (
            ("time_to_first_token_seconds", "Time to first token.", self.ttft),
            ("request_queue_time_seconds", "Time spent waiting.", self.queue_time),
            ("e2e_request_latency_seconds", "Time from arrival to the end.", self.latency),
        )
        for name, about, histogram in histograms:
            yield from (f"# HELP vllm:{name} {about}", f"# TYPE vllm:{name} histogram")
            yield from histogram.lines(f"vllm:{name}", labels)
