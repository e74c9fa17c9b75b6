"""One address that shows one engine, or one of several at a time."""

import math
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from scheduler.signals.exposition import Histogram
from scheduler.signals.reading import Reading
from scheduler.signals.replicas import REPLICA_SECONDS, SETTLE_SECONDS, Replicas, Scrape

TARGET = 0.8
STEP = 0.5


def reading(
    running: int = 0, waiting: int = 0, *, fast: int = 0, late: int = 0, started_at: float | None = 1.0
) -> Reading:
    """A page that counts `fast` first tokens of 0.25 s and `late` ones of 2 s."""
    buckets = ((0.5, float(fast)), (1.0, float(fast)), (math.inf, float(fast + late)))
    ttft = Histogram(buckets, 0.25 * fast + 2.0 * late, fast + late)
    return Reading(running, waiting, waiting, ttft=ttft, queue_time=ttft, started_at=started_at)


def scraped(*readings: Reading) -> list[Scrape]:
    """The scrapes of these pages, half a second apart."""
    replicas = Replicas(TARGET)
    return [replicas.take(each, place * STEP) for place, each in enumerate(readings)]


def test_what_was_before_the_first_page_does_not_count() -> None:
    [first, second] = scraped(reading(3, fast=100, late=7), reading(4, fast=102, late=8))
    assert (first.first_tokens, first.late, first.queue_seconds) == (0, 0, None)
    assert (second.first_tokens, second.late, second.running) == (3, 1, 4)
    assert second.ttft_seconds == second.queue_seconds * 3 if second.queue_seconds else False
    assert second.ttft_seconds == 2.5


def test_without_new_requests_there_is_no_queue_time() -> None:
    assert scraped(reading(fast=5), reading(fast=5))[-1].queue_seconds is None


def test_a_counter_that_went_back_is_not_a_negative_rate() -> None:
    scrapes = scraped(reading(fast=100), reading(fast=102), reading(fast=1), reading(fast=3))
    assert [each.first_tokens for each in scrapes] == [0, 2, 2, 4]


def test_a_restarted_engine_is_a_fresh_start() -> None:
    scrapes = scraped(reading(fast=100), reading(fast=150, started_at=2.0), reading(fast=152, started_at=2.0))
    assert [each.first_tokens for each in scrapes] == [0, 0, 2]


def test_two_replicas_told_apart_add_up_and_keep_their_own_counters() -> None:
    scrapes = scraped(
        reading(3, 1, fast=100, started_at=1.0),
        reading(5, 0, fast=900, started_at=2.0),
        reading(4, 0, fast=101, started_at=1.0),
        reading(5, 2, fast=904, started_at=2.0),
    )
    assert [(each.running, each.waiting) for each in scrapes] == [(3, 1), (8, 1), (9, 0), (9, 2)]
    assert [each.first_tokens for each in scrapes] == [0, 0, 1, 5]


def test_a_replica_that_is_not_seen_any_more_is_forgotten() -> None:
    replicas = Replicas(TARGET)
    replicas.take(reading(9, started_at=1.0), 0.0)
    assert replicas.take(reading(2, started_at=2.0), REPLICA_SECONDS - 0.1).running == 11
    assert replicas.take(reading(2, started_at=2.0), REPLICA_SECONDS + 0.1).running == 2


def test_two_replicas_that_nothing_tells_apart_make_no_first_tokens_of_their_difference() -> None:
    pages = [reading(3, fast=100, started_at=None), reading(5, fast=900, started_at=None)] * 12
    assert all(each.first_tokens == 0 and each.queue_seconds is None for each in scraped(*pages))


def test_one_engine_without_a_start_time_is_believed_after_a_while() -> None:
    scrapes = scraped(*(reading(fast=place, started_at=None) for place in range(12)))
    settled = round(SETTLE_SECONDS / STEP)
    assert scrapes[settled - 1].first_tokens == 0
    assert scrapes[-1].first_tokens == 12 - settled


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 9), st.sampled_from([None, 1.0, 2.0])), max_size=40))
def test_counters_never_fall_whatever_the_pages_say(pages: list[tuple[int, int, float | None]]) -> None:
    scrapes = scraped(*(reading(fast=fast, late=late, started_at=started) for fast, late, started in pages))
    for before, after in pairwise(scrapes):
        assert after.first_tokens >= before.first_tokens
        assert after.late >= before.late
        assert after.ttft_seconds >= before.ttft_seconds
        assert after.late <= after.first_tokens
