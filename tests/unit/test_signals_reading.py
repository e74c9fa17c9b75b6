"""One page of each engine, with the names and labels that its documentation gives."""

import pytest

from scheduler.signals.exposition import UnreadablePage
from scheduler.signals.names import NAMES
from scheduler.signals.reading import MissingMetrics, read_page

VLLM = """
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="qwen"} 5.0
vllm:num_requests_running{engine="1",model_name="qwen"} 2.0
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="qwen"} 3.0
vllm:num_requests_waiting{engine="1",model_name="qwen"} 0.0
# TYPE vllm:num_requests_waiting_by_reason gauge
vllm:num_requests_waiting_by_reason{engine="0",model_name="qwen",reason="capacity"} 1.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="qwen",reason="deferred"} 2.0
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0",model_name="qwen"} 0.41
vllm:kv_cache_usage_perc{engine="1",model_name="qwen"} 0.12
# TYPE vllm:time_to_first_token_seconds histogram
vllm:time_to_first_token_seconds_bucket{engine="0",le="0.5",model_name="qwen"} 3.0
vllm:time_to_first_token_seconds_bucket{engine="0",le="+Inf",model_name="qwen"} 4.0
vllm:time_to_first_token_seconds_bucket{engine="1",le="0.5",model_name="qwen"} 1.0
vllm:time_to_first_token_seconds_bucket{engine="1",le="+Inf",model_name="qwen"} 1.0
vllm:time_to_first_token_seconds_count{engine="0",model_name="qwen"} 4.0
vllm:time_to_first_token_seconds_count{engine="1",model_name="qwen"} 1.0
vllm:time_to_first_token_seconds_sum{engine="0",model_name="qwen"} 2.5
vllm:time_to_first_token_seconds_sum{engine="1",model_name="qwen"} 0.25
# TYPE vllm:request_queue_time_seconds histogram
vllm:request_queue_time_seconds_bucket{engine="0",le="+Inf",model_name="qwen"} 4.0
vllm:request_queue_time_seconds_count{engine="0",model_name="qwen"} 4.0
vllm:request_queue_time_seconds_sum{engine="0",model_name="qwen"} 1.0
# TYPE process_start_time_seconds gauge
process_start_time_seconds 1.79602507e+09
"""
SGLANG = """
# TYPE sglang:num_running_reqs gauge
sglang:num_running_reqs{model_name="m",priority="",tp_rank="0",pp_rank="0"} 6.0
sglang:num_running_reqs{model_name="m",priority="1",tp_rank="0",pp_rank="0"} 4.0
sglang:num_running_reqs{model_name="m",priority="",tp_rank="1",pp_rank="0"} 6.0
# TYPE sglang:num_queue_reqs gauge
sglang:num_queue_reqs{model_name="m",priority="",tp_rank="0",pp_rank="0"} 2.0
# TYPE sglang:token_usage gauge
sglang:token_usage{model_name="m",tp_rank="0",pp_rank="0"} 0.28
# TYPE sglang:time_to_first_token_seconds histogram
sglang:time_to_first_token_seconds_bucket{le="0.4",model_name="m"} 9.0
sglang:time_to_first_token_seconds_bucket{le="+Inf",model_name="m"} 11.0
sglang:time_to_first_token_seconds_count{model_name="m"} 11.0
sglang:time_to_first_token_seconds_sum{model_name="m"} 3.5
"""
TENSORRT = """
# TYPE trtllm_num_requests_running gauge
trtllm_num_requests_running{engine_type="trtllm",model_name="m"} 4.0
# TYPE trtllm_num_requests_waiting gauge
trtllm_num_requests_waiting{engine_type="trtllm",model_name="m"} 1.0
# TYPE trtllm_kv_cache_utilization gauge
trtllm_kv_cache_utilization{engine_type="trtllm",model_name="m"} 0.62
"""
LLAMA = """
# HELP llamacpp:requests_processing Number of requests processing.
# TYPE llamacpp:requests_processing gauge
llamacpp:requests_processing 3
# HELP llamacpp:requests_deferred Number of requests deferred.
# TYPE llamacpp:requests_deferred gauge
llamacpp:requests_deferred 2
"""
TGI = """
# TYPE tgi_batch_current_size gauge
tgi_batch_current_size 5
# TYPE tgi_queue_size gauge
tgi_queue_size 3
"""
PAGES = {"vllm": VLLM, "sglang": SGLANG, "tensorrt-llm": TENSORRT, "llama.cpp": LLAMA, "tgi": TGI}


@pytest.mark.parametrize(
    ("engine", "running", "waiting", "waiting_for_room", "kv_usage", "first_tokens"),
    [
        ("vllm", 7, 3, 1, 0.41, 5),
        ("sglang", 6, 2, 2, 0.28, 11),
        ("tensorrt-llm", 4, 1, 1, 0.62, None),
        ("llama.cpp", 3, 2, 2, None, None),
        ("tgi", 5, 3, 3, None, None),
    ],
)
def test_a_page_of_each_engine(
    engine: str, running: int, waiting: int, waiting_for_room: int, kv_usage: float | None, first_tokens: int | None
) -> None:
    reading = read_page(NAMES[engine], PAGES[engine].encode())
    assert (reading.running, reading.waiting, reading.waiting_for_room) == (running, waiting, waiting_for_room)
    assert reading.kv_usage == kv_usage
    assert (reading.ttft.count if reading.ttft else None) == first_tokens
    assert reading.missing == ()


def test_every_engine_with_metrics_has_a_page_here() -> None:
    assert NAMES.keys() == PAGES.keys()


def test_what_vllm_says_of_time() -> None:
    reading = read_page(NAMES["vllm"], VLLM.encode())
    assert reading.ttft is not None
    assert (reading.ttft.seconds, reading.ttft.above(0.5)) == (2.75, 1)
    assert reading.queue_time is not None
    assert reading.queue_time.seconds == 1.0
    assert reading.started_at == 1.79602507e9


def test_a_vllm_that_tells_only_the_reasons() -> None:
    page = "\n".join(line for line in VLLM.splitlines() if "num_requests_waiting{" not in line)
    reading = read_page(NAMES["vllm"], page.encode())
    assert (reading.waiting, reading.waiting_for_room) == (3, 1)


def test_an_older_vllm_that_tells_no_reasons() -> None:
    page = "\n".join(line for line in VLLM.splitlines() if "by_reason" not in line)
    reading = read_page(NAMES["vllm"], page.encode())
    assert (reading.waiting, reading.waiting_for_room) == (3, 3)


@pytest.mark.parametrize("engine", PAGES)
def test_a_missing_metric_is_named_with_what_to_do(engine: str) -> None:
    names = NAMES[engine]
    without = "\n".join(line for line in PAGES[engine].splitlines() if names.running not in line)
    with pytest.raises(MissingMetrics) as seen:
        read_page(names, without.encode())
    assert str(seen.value) == f"{names.running} missing: {names.to_do}"


def test_a_page_of_something_else_lacks_both() -> None:
    with pytest.raises(MissingMetrics, match=r"^tgi_batch_current_size and tgi_queue_size missing: "):
        read_page(NAMES["tgi"], b"<html><p>Welcome</p></html>")


def test_what_is_not_needed_may_be_missing_and_is_named() -> None:
    page = "\n".join(line for line in VLLM.splitlines() if "kv_cache" not in line and "queue_time" not in line)
    reading = read_page(NAMES["vllm"], page.encode())
    assert reading.missing == ("vllm:kv_cache_usage_perc", "vllm:request_queue_time_seconds")
    assert reading.kv_usage is None


def test_a_number_that_is_none_spoils_the_page() -> None:
    with pytest.raises(UnreadablePage):
        read_page(NAMES["tgi"], TGI.replace(" 5", " NaN").encode())
