"""The minutes that are held out, and the limit in them."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from scheduler.capacity import NOTHING, Amount, PoolCapacity
from scheduler.holdout import is_held_out
from scheduler.limit import CALM_SECONDS, Limit, Rule
from scheduler.signals.load import Load
from tickets_batch.settings import Scheduler, Settings

BEGAN = datetime(2026, 11, 30, 22, 0, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
POOL = PoolCapacity(Amount(20, 60_000), Amount(8, 24_000), Amount(2, 6_000))
TARGET_SECONDS = 0.8
FULL = Load(batch_in_flight=POOL.most_batch, batch_expected_seconds=1.0)
LATE = Load(batch_in_flight=POOL.most_batch, ttfts_seconds=(2 * TARGET_SECONDS,))


class TestWhichMinutes:
    @given(st.sampled_from([0.5, 0.25, 0.1, 0.05, 0.02, 0.01]), st.integers(0, 10**6), st.text("ab-", min_size=1))
    @settings(max_examples=50, deadline=None)
    def test_one_in_each_stretch(self, share: float, stretch: int, pool: str) -> None:
        length = round(1 / share)
        first = datetime.fromtimestamp(stretch * length * 60, UTC)
        assert sum(is_held_out(pool, first + minute * MINUTE, share) for minute in range(length)) == 1

    def test_a_minute_is_held_out_as_a_whole(self) -> None:
        for minute in range(200):
            seconds = [0.0, 0.001, 30.0, 59.999]
            at = BEGAN + minute * MINUTE
            assert len({is_held_out("gpu", at + timedelta(seconds=second), 0.1) for second in seconds}) == 1

    def test_each_minute_of_a_stretch_as_often_as_any_other(self) -> None:
        drawn = [minute % 10 for minute in range(20_000) if is_held_out("gpu", BEGAN + minute * MINUTE, 0.1)]
        assert len(drawn) == 2000
        assert all(150 < drawn.count(minute) < 250 for minute in range(10))

    def test_pools_do_not_share_their_minutes(self) -> None:
        both = sum(
            is_held_out("gpu", BEGAN + minute * MINUTE, 0.1) and is_held_out("deep", BEGAN + minute * MINUTE, 0.1)
            for minute in range(20_000)
        )
        assert 120 < both < 280

    def test_none_where_none_is_wanted(self) -> None:
        assert not any(is_held_out("gpu", BEGAN + minute * MINUTE, 0.0) for minute in range(1000))


class TestTheSetting:
    def test_it_is_one_minute_in_fifty_unless_somebody_says_otherwise(self) -> None:
        assert Settings().scheduler.holdout == 0.02
        assert sum(is_held_out("gpu", BEGAN + minute * MINUTE, 0.02) for minute in range(5000)) == pytest.approx(
            100, abs=1
        )

    @pytest.mark.parametrize("share", [-0.01, 0.51, float("nan")])
    def test_a_share_that_is_none_is_refused(self, share: float) -> None:
        with pytest.raises(ValidationError, match="holdout"):
            Settings(scheduler=Scheduler(holdout=share))


class TestTheLimitInThem:
    @given(
        st.builds(
            Load,
            in_flight=st.builds(Amount, st.integers(0, 20), st.integers(0, 60_000)),
            ttfts_seconds=st.lists(st.floats(0, 3), max_size=2).map(tuple),
            batch_in_flight=st.builds(Amount, st.integers(0, 20), st.integers(0, 60_000)),
            is_congested=st.booleans(),
        )
    )
    def test_it_is_the_floor_whatever_the_load(self, load: Load) -> None:
        decision = Limit(POOL, TARGET_SECONDS).decide(load, 1000.0, is_held_out=True)
        assert (decision.published.limit, decision.room, decision.rule) == (POOL.floor, POOL.floor, Rule.HOLDOUT)

    def test_what_runs_may_end(self) -> None:
        limit = Limit(POOL, TARGET_SECONDS)
        assert limit.decide(FULL, 1000.0).rule is Rule.MAXIMUM
        assert not limit.decide(FULL, 1000.5, is_held_out=True).pull_back

    def test_nobody_is_blamed_for_it(self) -> None:
        limit = Limit(POOL, TARGET_SECONDS)
        before = limit.decide(FULL, 1000.0)
        for tick in range(1, 121):
            limit.decide(FULL, 1000.0 + tick / 2, is_held_out=True)
        after = limit.decide(FULL, 1060.5)
        assert (after.rule, after.published) == (Rule.MAXIMUM, before.published)

    def test_a_chat_that_suffers_from_what_still_runs_gets_it_back(self) -> None:
        limit = Limit(POOL, TARGET_SECONDS)
        limit.decide(FULL, 1000.0)
        decision = limit.decide(LATE, 1000.5, is_held_out=True)
        assert (decision.rule, decision.pull_back) == (Rule.HOLDOUT, True)
        assert limit.decide(FULL, 1000.5 + CALM_SECONDS / 2).rule is Rule.TTFT

    def test_a_late_chat_is_counted_as_held_out_all_the_same(self) -> None:
        limit = Limit(POOL, TARGET_SECONDS)
        late = Load(batch_in_flight=POOL.floor, ttfts_seconds=(2 * TARGET_SECONDS,))
        assert {limit.decide(late, 1000.0 + tick / 2, is_held_out=True).rule for tick in range(120)} == {Rule.HOLDOUT}

    @pytest.mark.parametrize(
        ("load", "is_open", "rule"),
        [(Load(is_blind=True), True, Rule.BLIND), (FULL, False, Rule.CLOSED)],
        ids=["blind", "closed"],
    )
    def test_where_batch_could_not_borrow_anyway_nothing_is_held_out(
        self, load: Load, is_open: bool, rule: Rule
    ) -> None:
        decision = Limit(POOL, TARGET_SECONDS).decide(load, 1000.0, is_open=is_open, is_held_out=True)
        assert decision.rule is rule

    def test_a_pool_of_batchs_own_has_nobody_to_cost_anything(self) -> None:
        dedicated = PoolCapacity(Amount(20, 60_000), NOTHING, Amount(20, 60_000))
        decision = Limit(dedicated, TARGET_SECONDS).decide(FULL, 1000.0, is_held_out=True)
        assert (decision.rule, decision.room) == (Rule.DEDICATED, dedicated.total)
