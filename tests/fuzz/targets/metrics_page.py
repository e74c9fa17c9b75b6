"""A page of metrics of any bytes: numbers that can be of requests, the same as in the whole page, or one line."""

import math
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from scheduler.signals.exposition import Histogram, Page, UnreadablePage
from scheduler.signals.names import NAMES
from scheduler.signals.reading import Reading, read_page
from tests.fuzz.claims import one_line
from tests.fuzz.target import Target

ENGINES = tuple(NAMES)
READ = frozenset({"a", "b_total", "h", "h_bucket", "h_sum", "h_count"})


def judge(data: bytes, folder: Path) -> None:
    """The first byte says whose page it is."""
    engine, page = ENGINES[(data[:1] or b"\0")[0] % len(ENGINES)], data[1:]
    try:
        reading = read_page(NAMES[engine], page)
    except UnreadablePage as error:
        one_line(error)
    else:
        check(reading)
    try:
        ours = Page.parse(page, READ)
    except UnreadablePage:
        return
    whole = simply_read(page)
    if whole is not None:
        assert {name: list(samples) for name, samples in ours.samples.items() if name in READ} == whole


def check(reading: Reading) -> None:
    for count in (reading.running, reading.waiting, reading.waiting_for_room):
        assert 0 <= count < 2**63, count
    for histogram in (reading.ttft, reading.queue_time):
        if histogram is not None:
            check_histogram(histogram)
    for number in (reading.kv_usage, reading.started_at):
        assert number is None or 0 <= number < math.inf


def check_histogram(histogram: Histogram) -> None:
    assert 0 <= histogram.seconds < math.inf
    assert 0 <= histogram.count < math.inf
    assert not any(math.isnan(bound) for bound, _ in histogram.buckets)
    assert histogram.above(0.5) <= histogram.count
    since = histogram.since(histogram)
    assert since is not None
    assert since.count == 0


def simply_read(page: bytes) -> dict[str, list[tuple[dict[str, str], float]]] | None:
    """What the library finds on the whole page; None where it finds no page."""
    samples: dict[str, list[tuple[dict[str, str], float]]] = {}
    try:
        for family in text_string_to_metric_families(page.decode()):
            for sample in family.samples:
                if sample.name in READ:
                    samples.setdefault(sample.name, []).append((dict(sample.labels), float(sample.value)))
    except (ValueError, TypeError, LookupError, AttributeError):
        return None
    return samples


VLLM = b"""# HELP vllm:num_requests_running x
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{model="m"} 3.0
vllm:num_requests_waiting{model="m"} 1.0
vllm:num_requests_waiting_by_reason{reason="capacity"} 1
vllm:time_to_first_token_seconds_bucket{le="0.1"} 1
vllm:time_to_first_token_seconds_bucket{le="+Inf"} 2
vllm:time_to_first_token_seconds_sum 0.7
vllm:time_to_first_token_seconds_count 2
process_start_time_seconds 1.7e9
"""
TARGET = Target(
    judge,
    seeds=(
        b"\0" + VLLM,
        b"\0" + VLLM.replace(b"\n", b"\r\n"),
        b'\1sglang:num_running_reqs{tp_rank="0"} 1\nsglang:num_queue_reqs 0\nsglang:token_usage 0.5\n',
        b"\2trtllm_num_requests_running 1\ntrtllm_num_requests_waiting 2\n",
        b"\3llamacpp:requests_processing 1e3\nllamacpp:requests_deferred NaN\n",
        b"\4tgi_batch_current_size 1 1700000000\ntgi_queue_size 0 # {} 1\n",
        b'\0a 1\na{l="\\"x\\n"} 2\nb_total 3\nh_bucket{le="1"} 1\nh_sum 1\nh_count 1\n',
        b"\0a -1\nh_count +Inf\n",
        b"\0" + VLLM.replace(b'"0.1"', b'"NaN"'),
        b"\0 a 1\n\th_sum 1\n\x1eh_count 1\n",
    ),
    words=("a ", "b_total ", "h_bucket", '{le="', "h_sum ", "h_count ", "# TYPE ", "# HELP ", " gauge\n", " counter\n",
           "NaN", "+Inf", "1e308", "-0", '"}', "\n", "\u2028", "vllm:num_requests_running ",
           "vllm:num_requests_waiting "),
)  # fmt: skip
