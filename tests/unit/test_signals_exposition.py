"""A page of metrics: what is read of it, and what is never taken for a zero."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Gauge, generate_latest
from prometheus_client import Histogram as ClientHistogram

from scheduler.signals.exposition import Histogram, Page, UnreadablePage

BOUNDS = (0.1, 0.5, 1.0)


def histogram(*seconds: float) -> Histogram:
    """What a client library shows of these times, read back."""
    registry = CollectorRegistry()
    family = ClientHistogram("ttft", "Time.", registry=registry, buckets=BOUNDS)
    for each in seconds:
        family.observe(each)
    found = Page.parse(generate_latest(registry), ["ttft"]).histogram("ttft")
    assert found is not None
    return found


class TestPage:
    def test_engines_and_models_behind_one_address_add_up(self) -> None:
        registry = CollectorRegistry()
        gauge = Gauge("vllm:running", "Requests.", ["engine", "model_name"], registry=registry)
        for engine, value in enumerate((3, 4, 0)):
            gauge.labels(str(engine), 'a "quoted", name').set(value)
        page = Page.parse(generate_latest(registry), ["vllm:running"])
        assert page.total("vllm:running") == 7
        assert page.largest("vllm:running") == 4

    def test_what_is_not_there_is_not_zero(self) -> None:
        page = Page.parse(b"# HELP running Requests.\n# TYPE running gauge\nrunning_total 3\n", ["running"])
        assert page.total("running") is None
        assert page.largest("running") is None
        assert page.histogram("running") is None

    def test_only_what_was_asked_for_is_read(self) -> None:
        page = Page.parse(b"running 3\nrunning_more 9\nbroken{ 1\n", ["running"])
        assert page.samples == {"running": [({}, 3.0)]}

    def test_samples_that_repeat_a_part_are_left_out(self) -> None:
        body = b'running{priority=""} 5\nrunning{priority="1"} 2\nrunning{tp_rank="1"} 9\nrunning{tp_rank="0"} 1\n'
        assert Page.parse(body, ["running"]).total("running", {"priority": "", "tp_rank": "0"}) == 6

    @pytest.mark.parametrize(
        "body",
        [
            b"running{ 3\n",
            b"running three\n",
            b"running\n",
            b"running NaN\n",
            b"running -1\n",
            b"running +Inf\n",
            b"running 1e300\n",
            b"\xff\xfe running 3\n",
            b'running{engine="0} 3\n',
        ],
    )
    def test_what_does_not_parse_is_refused(self, body: bytes) -> None:
        with pytest.raises(UnreadablePage):
            Page.parse(body, ["running"])

    def test_only_a_line_feed_ends_a_line(self) -> None:
        body = 'running{engine="a\u2028running 7\x85"} 3\n'.encode()
        assert Page.parse(body, ["running"]).total("running") == 3

    @pytest.mark.parametrize("label", ['engine="0"', 'le=""', 'le="soon"', 'le="NaN"', 'le="-nan"'])
    def test_a_bucket_without_its_bound_is_refused(self, label: str) -> None:
        body = f"ttft_sum 1\nttft_count 1\nttft_bucket{{{label}}} 1\n".encode()
        with pytest.raises(UnreadablePage, match="bound"):
            Page.parse(body, ["ttft"]).histogram("ttft")

    @given(st.one_of(st.binary(max_size=200), st.text(max_size=200).map(lambda text: f"running{text}\n".encode())))
    def test_no_page_whatever_it_is_breaks_more_than_itself(self, body: bytes) -> None:
        try:
            total = Page.parse(body, ["running"]).total("running")
        except UnreadablePage:
            return
        assert total is None or (math.isfinite(total) and total >= 0)


class TestHistogram:
    def test_the_difference_is_what_came_between(self) -> None:
        since = histogram(0.05, 0.3, 0.7, 2.0).since(histogram(0.05, 0.3))
        assert since is not None
        assert (since.count, since.above(0.5), since.above(1.0)) == (2, 2, 1)
        assert since.seconds == pytest.approx(2.7)

    def test_a_counter_that_went_back_began_anew(self) -> None:
        assert histogram(0.05).since(histogram(0.05, 0.3)) is None

    def test_other_bounds_are_another_histogram(self) -> None:
        before = histogram(0.05)
        other = Histogram(((0.2, 1.0), (math.inf, 1.0)), 0.05, 1.0)
        assert other.since(before) is None

    def test_above_counts_only_what_is_surely_over(self) -> None:
        seen = histogram(0.3, 0.45, 0.7, 3.0)
        assert seen.above(0.4) == 2  # of what lies between 0.1 and 0.5 nobody can tell
        assert seen.above(5.0) == 0

    @given(
        st.lists(st.floats(0, 4, allow_nan=False), max_size=30), st.lists(st.floats(0, 4, allow_nan=False), max_size=30)
    )
    def test_no_difference_is_negative(self, earlier: list[float], later: list[float]) -> None:
        before = histogram(*earlier)
        since = histogram(*earlier, *later).since(before)
        assert since is not None
        assert since.count == len(later)
        assert since.above(0.5) == sum(each > 0.5 for each in later)
        if earlier:
            assert histogram().since(before) is None
