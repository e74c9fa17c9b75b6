"""The names under which each engine shows what is read of it, as its own documentation gives them."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class MetricNames:
    """`running` and `waiting` are needed, the rest tells more where it is there; `to_do` makes an engine show them.

    Of `waiting_by_reason` only the reason "capacity" is congestion. `kept` says which values of a label a gauge is read
    at (a sample without the label is read too): other values repeat a part of the same.
    """

    running: str
    waiting: str
    to_do: str
    waiting_by_reason: str | None = None
    kv_usage: str | None = None
    ttft: str | None = None
    queue_time: str | None = None
    page: str = "/metrics"
    kept: Mapping[str, str] = field(default_factory=dict)

    @property
    def optional(self) -> tuple[str, ...]:
        """What the engine shows beyond the numbers of requests."""
        return tuple(name for name in (self.kv_usage, self.ttft, self.queue_time) if name is not None)


NAMES: Mapping[str, MetricNames] = {
    "vllm": MetricNames(
        running="vllm:num_requests_running",
        waiting="vllm:num_requests_waiting",
        waiting_by_reason="vllm:num_requests_waiting_by_reason",
        kv_usage="vllm:kv_cache_usage_perc",
        ttft="vllm:time_to_first_token_seconds",
        queue_time="vllm:request_queue_time_seconds",
        to_do="start vLLM without --disable-log-stats",
    ),
    "sglang": MetricNames(
        running="sglang:num_running_reqs",
        waiting="sglang:num_queue_reqs",
        kv_usage="sglang:token_usage",
        ttft="sglang:time_to_first_token_seconds",
        to_do="start SGLang with --enable-metrics; some appear only with its first request",
        kept={"priority": "", "tp_rank": "0", "pp_rank": "0"},
    ),
    "tensorrt-llm": MetricNames(
        running="trtllm_num_requests_running",
        waiting="trtllm_num_requests_waiting",
        kv_usage="trtllm_kv_cache_utilization",
        page="/prometheus/metrics",
        to_do="start trtllm-serve with return_perf_metrics and enable_iter_perf_stats in its options file",
    ),
    "llama.cpp": MetricNames(
        running="llamacpp:requests_processing",
        waiting="llamacpp:requests_deferred",
        to_do="start llama-server with --metrics",
    ),
    "tgi": MetricNames(
        running="tgi_batch_current_size",
        waiting="tgi_queue_size",
        to_do="point url at the router's own /metrics",
    ),
}
