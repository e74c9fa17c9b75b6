"""The token estimate corrects itself from what the engine counts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.estimate import (
    ADDED_TOKENS,
    ENOUGH,
    FIRST_RATIO,
    MOST_BYTES_PER_TOKEN,
    WINDOW,
    TokenEstimator,
)


def test_the_first_guess_is_cautious() -> None:
    assert TokenEstimator().estimate("a" * 400) == round(100 * FIRST_RATIO)


def test_an_empty_text_is_one_token() -> None:
    assert TokenEstimator().estimate("") == 1


def test_a_few_reports_are_not_believed() -> None:
    estimator = TokenEstimator()
    for _ in range(ENOUGH - 1):
        estimator.learn(size=400, estimated=125, actual=300)
    assert estimator.ratio == FIRST_RATIO


def test_a_language_that_takes_more_tokens_is_learned() -> None:
    estimator = TokenEstimator()
    for _ in range(ENOUGH):
        estimator.learn(size=400, estimated=125, actual=300)
    assert estimator.estimate("a" * 400) == 300


@pytest.mark.parametrize(("most", "tokens"), [(200, 125), (110, 110), (100, 100), (90, 100)])
def test_what_only_the_caution_of_the_first_guess_makes_too_large_fits(most: int, tokens: int) -> None:
    assert TokenEstimator().within(400, most) == tokens


@pytest.mark.parametrize("most", [200, 110, 100])
def test_what_was_learned_is_said_whether_it_fits_or_not(most: int) -> None:
    estimator = TokenEstimator()
    for _ in range(ENOUGH):
        estimator.learn(size=400, estimated=125, actual=115)
    assert estimator.within(400, most) == 115


def test_old_reports_are_forgotten() -> None:
    estimator = TokenEstimator()
    for _ in range(WINDOW):
        estimator.learn(size=400, estimated=125, actual=300)
    for _ in range(WINDOW):
        estimator.learn(size=400, estimated=300, actual=80)
    assert estimator.estimate("a" * 400) == 80


@pytest.mark.parametrize("actual", [1, 2**31 - 1])
def test_a_count_that_no_tokenizer_gives_teaches_nothing(actual: int) -> None:
    estimator = TokenEstimator()
    for _ in range(WINDOW):
        estimator.learn(size=4000, estimated=1250, actual=actual)
    assert (estimator.ratio, estimator.report().count) == (FIRST_RATIO, 0)


def test_the_error_is_reported() -> None:
    estimator = TokenEstimator()
    estimator.learn(size=400, estimated=120, actual=100)
    estimator.learn(size=400, estimated=50, actual=100)
    report = estimator.report()
    assert report.count == 2
    assert abs(report.mean_error - 0.35) < 1e-9
    assert report.too_low_share == 0.5


def plausible(size: int) -> st.SearchStrategy[tuple[int, int]]:
    return st.tuples(st.just(size), st.integers(max(1, size // MOST_BYTES_PER_TOKEN + 1), size + ADDED_TOKENS))


@given(st.lists(st.integers(1, 10_000).flatmap(plausible), min_size=ENOUGH, max_size=400))
def test_most_of_the_recent_past_would_not_have_been_underestimated(seen: list[tuple[int, int]]) -> None:
    estimator = TokenEstimator()
    for size, actual in seen:
        estimator.learn(size, estimated=1, actual=actual)
    recent = seen[-WINDOW:]
    too_low = sum(estimator.of_bytes(size) + 1 < actual for size, actual in recent)
    assert too_low <= len(recent) * 0.1 + 2


@given(st.text(st.characters(), max_size=200))
def test_any_text_has_an_estimate(text: str) -> None:
    assert TokenEstimator().estimate(text) >= 1
