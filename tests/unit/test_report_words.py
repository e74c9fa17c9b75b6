"""The receipt in sentences: each says what was found, and how sure that is."""

from datetime import UTC, datetime

import pytest

from scheduler.capacity import Amount, PoolCapacity
from scheduler.receipt import Cost, Receipt
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
        "The batch cost the chat 0.21 s to the first token on pool gpu (95% interval 0.10 to 0.32 s): 19 in 20 first "
        "tokens came within 0.61 s where it could borrow, and within 0.40 s in the 9 minutes in which it was held at "
        "its floor by chance, compared with 422 others of a like chat."
    )


def test_what_may_be_chance() -> None:
    said = pool_in_words(pool(found(0.03, -0.02, 0.08)))
    assert said.startswith(
        "The batch cost the chat on pool gpu nothing that can be told from chance (0.03 s to the first token, "
        "95% interval −0.02 to 0.08 s): "
    )


def test_a_chat_that_was_faster() -> None:
    said = pool_in_words(pool(found(-0.2, -0.3, -0.1)))
    assert said.startswith(
        "Beside the batch the chat waited 0.20 s less for its first token on pool gpu (95% interval −0.30"
    )


def test_nothing_is_never_less_than_nothing() -> None:
    assert "(0.00 s to the first token, 95% interval 0.00 to 0.00 s)" in pool_in_words(
        pool(found(-0.001, -0.002, 0.001))
    )


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
