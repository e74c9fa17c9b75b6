"""The receipt in sentences: each says what was found, and how sure that is."""

import math
import random
import re
from datetime import UTC, datetime, timedelta
from statistics import fmean

import pytest

from scheduler.capacity import Amount, PoolCapacity
from scheduler.pool_reading import quantile
from scheduler.receipt import Cost, Look, Receipt, receipt
from tickets_batch.report.pool_night import Curves, PoolNight
from tickets_batch.report.words import pool_in_words

BEGAN = datetime(2026, 11, 30, 22, 0, tzinfo=UTC)
NOTHING_SEEN = Receipt(0, 0, None, None, None, None, None)


def pool(
    found: Receipt, *, is_dedicated: bool = False, night_seconds: float = 3600.0, seen_seconds: float = 3600.0
) -> PoolNight:
    return PoolNight(
        name="gpu",
        capacity=PoolCapacity(Amount(20, 60_000), Amount(8, 24_000), Amount(2, 6_000)),
        ttft_target_seconds=0.8,
        cost_per_hour=None,
        is_dedicated=is_dedicated,
        night_seconds=night_seconds,
        seen_seconds=seen_seconds,
        floor_seconds=600.0,
        rule_seconds={},
        arrivals=0,
        refused=0,
        revoked=0,
        late_share=None,
        batch_share=None,
        receipt=found,
        curves=Curves(10.0, (BEGAN,), (None,), (2.0,), (2.0,), (0.0,)),
    )


def found(seconds: float, low: float, high: float) -> Receipt:
    return Receipt(9, 422, 0.4 + seconds, 0.4, 12.0, 2.0, Cost(seconds, low, high))


def test_a_cost() -> None:
    assert pool_in_words(pool(found(0.21, 0.1, 0.32))) == (
        "The batch cost the chat 0.21 s to the first token on pool gpu (95% interval 0.10 s to 0.32 s): in the 9 "
        "minutes in which it was held at its floor by chance, the mean of the ten-second p95s of the chat's first "
        "tokens was 0.40 s; with that cost, told by 422 others of a like chat, it comes to 0.61 s. A cost under 0.11 s "
        "could not have been told from chance; what the floor itself costs is not in it."
    )


def test_what_may_be_chance() -> None:
    said = pool_in_words(pool(found(0.03, -0.02, 0.08)))
    assert said.startswith(
        "The batch cost the chat on pool gpu nothing that can be told from chance (0.03 s to the first token, "
        "95% interval −0.02 s to 0.08 s): "
    )


def test_a_chat_that_was_faster() -> None:
    said = pool_in_words(pool(found(-0.2, -0.3, -0.1)))
    assert said.startswith(
        "Beside the batch the chat waited 0.20 s less for its first token on pool gpu (95% interval −0.30 s"
    )


def test_milliseconds_are_not_rounded_to_nothing() -> None:
    said = pool_in_words(pool(found(0.0042, 0.0008, 0.0161)))
    assert said.startswith(
        "The batch cost the chat 4.2 ms to the first token on pool gpu (95% interval 0.8 ms to 0.02 s): "
    )
    assert "A cost under 3.4 ms could not have been told from chance" in said


def test_nothing_is_never_less_than_nothing() -> None:
    assert "(0 ms to the first token, 95% interval −1 ms to 1 ms)" in pool_in_words(
        pool(found(-0.000001, -0.001, 0.001))
    )


# A sample tells the p95 of ten seconds: the largest of a few first tokens, so its mean is no p95 of the night.
@pytest.mark.parametrize("requests", [0.3, 1.0, 3.0, 10.0, 60.0])
def test_a_share_of_first_tokens_is_said_only_where_it_is_true(requests: float) -> None:
    """Of a chat whose times are exponential with a mean of a second, and of so many requests each ten seconds."""
    looks, at_floor = exponential_night(requests)
    told = receipt(looks)
    said = pool_in_words(pool(told))
    assert told.floor_ttft_seconds is not None
    share = fmean(seconds <= told.floor_ttft_seconds for seconds in at_floor)
    if re.search("19 (in|of) 20", said):
        assert share >= 0.95
    assert f"the mean of the ten-second p95s of the chat's first tokens was {told.floor_ttft_seconds:.2f} s;" in said
    plain, weighted = mean_of_p95s(requests)
    assert 0.85 * min(plain, weighted) <= told.floor_ttft_seconds <= 1.15 * max(plain, weighted)
    assert share < 0.93 or requests >= 10  # which is why no share is said


def exponential_night(requests: float, minutes: int = 900) -> tuple[list[Look], list[float]]:
    """The looks of a night in which every third minute is held out and batch costs nothing; the times in the latter."""
    rng = random.Random(7)
    looks, at_floor = [], []
    for place in range(6 * minutes):
        at = BEGAN + timedelta(seconds=10 * place + 5)
        held_out = place // 6 % 3 == 0
        ttfts = [rng.expovariate(1.0) for _ in range(poisson(requests, rng))]
        at_floor += ttfts if held_out else []
        looks.append(Look(at, round(requests), len(ttfts), quantile(ttfts, 0.95), 2, held_out, is_open=True))
    return looks, at_floor


def mean_of_p95s(requests: float) -> tuple[float, float]:
    """What the p95s of ten seconds come to on average, each counted alike and by its requests.

    The k-th of n exponential times is on average 1/n + 1/(n-1) + ... + 1/(n-k+1).
    """
    counts = range(1, 200)
    chances = [math.exp(count * math.log(requests) - requests - math.lgamma(count + 1)) for count in counts]
    means = [sum(1 / (count - place) for place in range(math.ceil(0.95 * count))) for count in counts]
    return fmean(means, chances), fmean(means, [chance * count for chance, count in zip(chances, counts, strict=True)])


def poisson(mean: float, rng: random.Random) -> int:
    count, left = 0, rng.expovariate(1.0)
    while left < mean:
        count += 1
        left += rng.expovariate(1.0)
    return count


@pytest.mark.parametrize(
    ("night", "why"),
    [
        (
            pool(NOTHING_SEEN, night_seconds=3.2, seen_seconds=0.0),
            "nothing was recorded of it, because the scheduler writes a sample every 10 seconds, and the batch took "
            "3 s.",
        ),
        (
            pool(NOTHING_SEEN, seen_seconds=0.0),
            "nothing was recorded of it, because no scheduler was there to write a sample every 10 seconds.",
        ),
        (pool(NOTHING_SEEN), "no time to first token of the chat is known; the gateway measures it"),
        (pool(Receipt(1, 40, None, 0.4, 12.0, 2.0, None)), "1 minute with chat held out, and 3 are needed"),
        (pool(Receipt(0, 40, None, None, 12.0, None, None)), "0 minutes with chat held out, and 3 are needed"),
        (pool(Receipt(4, 4, None, 0.4, 12.0, 2.0, None)), "4 other minutes with chat, and 10 are needed"),
    ],
)
def test_why_nothing_can_be_told(night: PoolNight, why: str) -> None:
    assert pool_in_words(night).startswith(f"What the batch cost the chat on pool gpu cannot be told: {why}")


def test_a_pool_of_its_own() -> None:
    said = pool_in_words(pool(NOTHING_SEEN, is_dedicated=True))
    assert said == "The batch cost the chat nothing on pool gpu: the pool was its own."
