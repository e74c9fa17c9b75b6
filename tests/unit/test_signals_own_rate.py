"""The prefill rate, kept in order as requests come and go: what a look at all of them would give."""

from collections import deque
from statistics import median

from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.permit import Kind
from scheduler.signals import own
from scheduler.signals.own import ENOUGH, RATE_QUANTILE, OwnRequests
from scheduler.snapshot import FirstToken

requests = st.builds(
    FirstToken, st.just(Kind.BATCH), st.sampled_from([0.0, 0.05, 0.1, 0.2, 0.4, 1.5, 3.0]), st.integers(0, 40)
)


def rate_of_all(seen: list[FirstToken]) -> float | None:
    """By the words of `prefill_rate`, from all requests at once."""
    if len(seen) < ENOUGH:
        return None
    large = median(request.prompt_tokens for request in seen)
    rates = sorted(
        request.prompt_tokens / request.seconds
        for request in seen
        if request.prompt_tokens >= large and request.seconds > 0 and request.prompt_tokens > 0
    )
    return rates[min(len(rates) - 1, int(RATE_QUANTILE * len(rates)))] if rates else None


@settings(max_examples=60)
@given(st.lists(st.lists(requests, max_size=9), max_size=20))
def test_it_is_that_of_all_requests_in_the_window(story: list[list[FirstToken]]) -> None:
    learner, seen, window = OwnRequests(0.8), deque[FirstToken](maxlen=24), own.WINDOW
    own.WINDOW = 24
    try:
        for number, news in enumerate(story):
            learner.take(news, float(number))
            seen.extend(news)
            assert learner.prefill_rate == rate_of_all(list(seen))
            assert learner.smallest_prompt == max(1, min((one.prompt_tokens for one in seen), default=1))
    finally:
        own.WINDOW = window
