"""Our own requests as a source, and what a snapshot tells since the one before."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.capacity import NOTHING, Amount, PoolCapacity
from scheduler.permit import Kind
from scheduler.signals.differences import PREFILLED_SECONDS, Differences, Prefilled
from scheduler.signals.own import ENOUGH, LATE_IN_A_ROW, STALE_SECONDS, OwnRequests
from scheduler.signals.tokens import TokensPerRequest
from scheduler.snapshot import FirstToken
from tests.support.readings import snapshot

TARGET = 0.8


def batch(seconds: float, prompt_tokens: int = 1000) -> FirstToken:
    return FirstToken(Kind.BATCH, seconds, prompt_tokens)


def chat(seconds: float) -> FirstToken:
    return FirstToken(Kind.INTERACTIVE, seconds, 500)


class TestOwnRequests:
    def test_nothing_is_known_of_the_rate_until_enough_was_seen(self) -> None:
        own = OwnRequests(TARGET)
        own.take([batch(0.1)] * (ENOUGH - 1), 0.0)
        assert own.prefill_rate is None
        own.take([batch(0.1)], 0.0)
        assert own.prefill_rate == pytest.approx(10_000)

    def test_the_rate_is_that_of_large_prompts_that_did_not_queue(self) -> None:
        own = OwnRequests(TARGET)
        own.take([batch(0.1, 20)] * 10 + [batch(0.2, 2000)] * 8 + [batch(0.9, 2000)] * 12, 0.0)
        assert own.prefill_rate == pytest.approx(10_000)

    def test_a_few_in_a_row_that_queue_for_over_half_the_target_are_congestion(self) -> None:
        own = OwnRequests(TARGET)
        own.take([batch(0.1)] * ENOUGH, 0.0)
        own.take([batch(0.55)] * (LATE_IN_A_ROW - 1), 1.0)
        assert not own.is_congested(1.0)
        own.take([batch(0.55)], 1.5)
        assert own.is_congested(1.5)
        own.take([batch(0.2)], 2.0)
        assert not own.is_congested(2.0)

    def test_a_long_prefill_is_no_queue(self) -> None:
        own = OwnRequests(TARGET)
        own.take([batch(0.1)] * ENOUGH, 0.0)
        own.take([batch(1.0, 10_000)] * LATE_IN_A_ROW, 1.0)
        assert not own.is_congested(1.0)

    def test_it_passes_when_nothing_more_is_heard(self) -> None:
        own = OwnRequests(TARGET)
        own.take([batch(0.1)] * ENOUGH, 9.0)
        own.take([batch(2.0)] * LATE_IN_A_ROW, 10.0)
        assert own.is_congested(10.0 + STALE_SECONDS - 0.1)
        assert not own.is_congested(10.0 + STALE_SECONDS)

    def test_minutes_of_congestion_do_not_become_the_usual(self) -> None:
        own = OwnRequests(TARGET)
        own.take([batch(0.1)] * 100, 0.0)
        for second in range(400):
            own.take([batch(2.0)] * 2, second)
        assert own.is_congested(400.0)

    @given(st.lists(st.tuples(st.floats(0, 10), st.integers(0, 10_000)), max_size=50))
    def test_a_rate_is_positive_whatever_was_seen(self, requests: list[tuple[float, int]]) -> None:
        own = OwnRequests(TARGET)
        own.take([batch(*request) for request in requests], 0.0)
        assert own.prefill_rate is None or own.prefill_rate > 0
        assert own.smallest_prompt >= 1


class TestPrefilled:
    def test_it_is_the_mean_of_a_while(self) -> None:
        prefilled = Prefilled()
        assert prefilled.tokens_per_second == 0
        for second in range(30):
            prefilled.take(4_000, float(second))
        assert prefilled.tokens_per_second == pytest.approx(4_000, rel=0.2)

    def test_what_is_long_ago_counts_no_more(self) -> None:
        prefilled = Prefilled()
        prefilled.take(100_000, 0.0)
        prefilled.take(0, PREFILLED_SECONDS)
        assert prefilled.tokens_per_second == 100_000 / PREFILLED_SECONDS
        prefilled.take(0, PREFILLED_SECONDS + 0.5)
        assert prefilled.tokens_per_second == 0


class TestDifferences:
    def test_what_was_before_the_first_snapshot_is_no_news(self) -> None:
        news = Differences().take(snapshot(arrivals=9, first_tokens=2, recent=(chat(1), batch(2))))
        assert (news.arrivals, news.chat_ttfts_seconds, news.batch) == (0, (), ())

    def test_only_what_is_new_by_class_and_the_oldest_first(self) -> None:
        differences = Differences()
        differences.take(snapshot(arrivals=9, first_tokens=2, recent=(chat(1), batch(2))))
        recent = (chat(5), batch(4), chat(3), chat(1), batch(2))
        news = differences.take(snapshot(arrivals=12, first_tokens=5, recent=recent))
        assert news.arrivals == 3
        assert news.chat_ttfts_seconds == (3.0, 5.0)
        assert (news.batch, news.batch_first_tokens) == ((batch(4),), 1)
        assert news.prompt_tokens == 500 + 1000 + 500

    def test_of_more_than_are_listed_the_share_is_kept(self) -> None:
        differences = Differences()
        differences.take(snapshot())
        news = differences.take(snapshot(first_tokens=80, recent=(chat(1), batch(2), batch(3), batch(4))))
        assert news.batch_first_tokens == 60
        assert news.prompt_tokens == 80 * (500 + 3 * 1000) / 4

    @pytest.mark.parametrize("epoch", ["one", "two"])
    def test_a_redis_that_began_anew_counts_from_zero(self, epoch: str) -> None:
        differences = Differences()
        differences.take(snapshot(arrivals=900, first_tokens=500, recent=(chat(1),) * 9))
        after = snapshot(epoch=epoch, arrivals=2, first_tokens=1, recent=(chat(7),))
        news = differences.take(after)
        assert (news.arrivals, news.chat_ttfts_seconds) == (2, (7,))

    def test_a_new_ledger_that_has_counted_past_the_old_one_is_still_new(self) -> None:
        differences = Differences()
        differences.take(snapshot(arrivals=3))
        assert differences.take(snapshot(epoch="two", arrivals=5)).arrivals == 5


class TestTokensPerRequest:
    CAPACITY = PoolCapacity(Amount(20, 60_000), Amount(8, 16_000), Amount(2, 6_000))

    def test_it_begins_with_a_protected_slots_share(self) -> None:
        assert TokensPerRequest(self.CAPACITY).amount(3) == Amount(3, 6_000)

    def test_it_begins_with_any_slots_share_where_chat_has_none(self) -> None:
        capacity = PoolCapacity(Amount(20, 60_000), NOTHING, Amount(2, 6_000))
        assert TokensPerRequest(capacity).amount(1) == Amount(1, 3_000)

    def test_it_learns_what_chat_holds(self) -> None:
        tokens = TokensPerRequest(self.CAPACITY)
        for _ in range(200):
            tokens.learn(Amount(4, 2_400))
            tokens.learn(NOTHING)
        assert tokens.amount(1).tokens == pytest.approx(600, abs=2)
