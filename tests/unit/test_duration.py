"""The estimate of a ticket's seconds corrects itself from the requests that ended."""

import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.duration import (
    ENOUGH,
    FIRST_FACTOR,
    OUTPUT_TOKEN_SECONDS,
    PROMPT_TOKEN_SECONDS,
    WINDOW,
    DurationEstimator,
)

Engine = Callable[[int, int], float]
"""Seconds of a request from its prompt and its output tokens."""


def middle_gpu(prompt_tokens: int, output_tokens: int) -> float:
    return PROMPT_TOKEN_SECONDS * prompt_tokens + OUTPUT_TOKEN_SECONDS * output_tokens


def processor(prompt_tokens: int, output_tokens: int) -> float:
    """Reads its prompts slowly, beside what it takes to write."""
    return 0.004 * prompt_tokens + 0.05 * output_tokens


def big_batches(prompt_tokens: int, output_tokens: int) -> float:
    """Reads fast, and writes slowly because so many are beside each other."""
    return 2e-5 * prompt_tokens + 0.09 * output_tokens


def feed(estimator: DurationEstimator, engine: Engine, count: int, *sizes: tuple[int, int, int]) -> None:
    """So many requests of the sizes (prompt, output, cap) in turn, each a little slower or faster than it should be."""
    noise = random.Random(7)
    for number in range(count):
        prompt, output, cap = sizes[number % len(sizes)]
        estimator.learn(prompt, output, cap, engine(prompt, output) * noise.uniform(0.9, 1.1))


def test_the_first_guess_is_cautious_and_takes_the_whole_cap() -> None:
    assert DurationEstimator().predict(3_000, 400) == pytest.approx(FIRST_FACTOR * middle_gpu(3_000, 400))


def test_a_few_requests_are_not_believed() -> None:
    estimator = DurationEstimator()
    feed(estimator, processor, ENOUGH - 1, (500, 8, 32))
    assert estimator.predict(500, 32) == DurationEstimator().predict(500, 32)


def test_answers_much_shorter_than_their_cap_are_expected_to_stay_so() -> None:
    estimator = DurationEstimator()
    feed(estimator, middle_gpu, WINDOW, (500, 8, 400))
    assert estimator.predict(500, 400) == pytest.approx(middle_gpu(500, 8), rel=0.15)


@pytest.mark.parametrize("engine", [middle_gpu, processor, big_batches])
@pytest.mark.parametrize(
    ("sizes", "asked"),
    [
        ([(500, 40, 40)], [(500, 40)]),
        ([(500, 40, 40), (3_000, 400, 400)], [(500, 40), (3_000, 400)]),
        ([(6_000, 8, 8), (100, 400, 400)], [(6_000, 8), (100, 400), (3_000, 200)]),
    ],
    ids=["alike", "small-and-large", "long-prompts-and-long-answers"],
)
def test_every_engine_and_mix_is_learned(
    engine: Engine, sizes: list[tuple[int, int, int]], asked: list[tuple[int, int]]
) -> None:
    estimator = DurationEstimator()
    feed(estimator, engine, WINDOW, *sizes)
    for prompt, output in asked:
        assert 0.95 <= estimator.predict(prompt, output) / engine(prompt, output) <= 1.35


@pytest.mark.parametrize("factor", [0.25, 4.0])
def test_an_engine_that_changes_its_speed_is_followed_within_a_few_dozen_answers(factor: float) -> None:
    estimator = DurationEstimator()
    feed(estimator, middle_gpu, 300, (500, 40, 40), (3_000, 400, 400))
    feed(estimator, lambda *size: factor * middle_gpu(*size), WINDOW, (500, 40, 40), (3_000, 400, 400))
    for size in ((500, 40), (3_000, 400)):
        assert estimator.predict(*size) == pytest.approx(factor * middle_gpu(*size), rel=0.25)


def test_an_engine_that_gets_slower_is_noticed_before_most_of_them() -> None:
    estimator = DurationEstimator()
    feed(estimator, middle_gpu, 300, (500, 40, 40))
    feed(estimator, lambda *size: 3 * middle_gpu(*size), WINDOW // 4, (500, 40, 40))
    assert estimator.predict(500, 40) > 2.5 * middle_gpu(500, 40)


def test_one_request_that_stood_still_moves_nothing() -> None:
    estimator = DurationEstimator()
    feed(estimator, middle_gpu, WINDOW, (500, 40, 40), (3_000, 400, 400))
    before = estimator.predict(500, 40), estimator.predict(3_000, 400)
    estimator.learn(3_000, 400, 400, 120.0)
    estimator.learn(500, 40, 40, 120.0)
    feed(estimator, middle_gpu, WINDOW // 2, (500, 40, 40), (3_000, 400, 400))
    assert (estimator.predict(500, 40), estimator.predict(3_000, 400)) == pytest.approx(before, rel=0.15)


def test_about_one_request_in_ten_takes_longer_than_predicted() -> None:
    estimator, noise, late = DurationEstimator(), random.Random(3), 0
    for _ in range(1_000):
        prompt, output = noise.choice([(500, 8), (500, 12), (2_000, 10)])
        seconds = middle_gpu(prompt, output) * noise.lognormvariate(0, 0.3)
        late += seconds > estimator.predict(prompt, output)
        estimator.learn(prompt, output, output, seconds)
    assert 50 <= late <= 180


def test_what_was_prefilled_is_told_by_the_first_tokens_that_stood_in_no_queue() -> None:
    estimator = DurationEstimator()
    assert estimator.prefilled(3_000, 0.1) == 1_250
    for number in range(WINDOW):
        queued_seconds = 5.0 if number % 2 else 0.0
        estimator.learn(1_000, 10, 10, 6.0, ttft_seconds=0.5 + queued_seconds)
    assert estimator.prefilled(3_000, 0.1) == 200
    assert estimator.prefilled(3_000, 60.0) == 3_000
    assert estimator.prefilled(3_000, -1.0) == 0


requests = st.tuples(
    st.integers(-1, 200_000),
    st.integers(-1, 20_000),
    st.integers(0, 20_000),
    st.floats(-1, 10_000),
    st.none() | st.floats(0, 10_000),
)


@given(st.lists(requests, max_size=3 * WINDOW), st.integers(1, 200_000), st.integers(1, 20_000))
def test_whatever_was_seen_larger_requests_take_longer_and_none_no_time(
    seen: list[tuple[int, int, int, float, float | None]], prompt: int, cap: int
) -> None:
    estimator = DurationEstimator()
    for request in seen:
        estimator.learn(*request)
    seconds = estimator.predict(prompt, cap)
    assert 0 < seconds < float("inf")
    assert seconds <= estimator.predict(2 * prompt, cap) <= 2 * seconds * 1.001
    assert seconds <= estimator.predict(prompt, 2 * cap) <= 2 * seconds * 1.001
    assert 0 <= estimator.prefilled(prompt, seconds) <= prompt


@given(
    st.lists(st.sampled_from([(500, 40), (3_000, 400), (100, 8), (20_000, 8)]), min_size=WINDOW, max_size=2 * WINDOW),
    st.floats(1e-6, 1e-1),
    st.floats(1e-4, 1.0),
)
def test_without_noise_the_sizes_that_were_seen_are_predicted(
    sizes: list[tuple[int, int]], prompt_seconds: float, output_seconds: float
) -> None:
    estimator = DurationEstimator()
    for prompt, output in sizes:
        estimator.learn(prompt, output, output, prompt_seconds * prompt + output_seconds * output)
    common = [size for size in set(sizes) if sizes[-WINDOW:].count(size) >= WINDOW // 4]
    for prompt, output in common:
        expected = prompt_seconds * prompt + output_seconds * output
        assert 0.5 <= estimator.predict(prompt, output) / expected <= 3.0
