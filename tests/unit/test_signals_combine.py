"""Many sources, one reading; and how long a source is believed."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.capacity import Amount
from scheduler.signals.combine import Report, combine
from scheduler.signals.fetch import SignalUnavailable
from scheduler.signals.load import SourceAge
from scheduler.signals.poll import STALE_SECONDS, Poll

FRESH = (SourceAge("ledger", 0.5, True),)
STALE = (SourceAge("engine", 9.0, False),)

REPORTS = st.lists(
    st.builds(
        Report,
        ages=st.sampled_from([(), FRESH, STALE]),
        in_flight=st.builds(Amount, st.integers(0, 50), st.integers(0, 100_000)),
        waiting=st.integers(0, 9),
        oldest_waiting_seconds=st.floats(0, 10),
        arrivals=st.integers(0, 9),
        ttfts_seconds=st.lists(st.floats(0, 9), max_size=3).map(tuple),
        is_congested=st.booleans(),
        is_exact=st.booleans(),
        is_estimate=st.booleans(),
    ),
    max_size=5,
)


class TestCombine:
    def test_the_larger_load_stands_on_each_axis(self) -> None:
        reports = [Report(FRESH, in_flight=Amount(3, 9_000)), Report(STALE, in_flight=Amount(5, 2_000), waiting=2)]
        load = combine(reports, is_dedicated=False)
        assert (load.in_flight, load.waiting) == (Amount(5, 9_000), 2)

    def test_what_was_counted_stands_over_what_was_estimated(self) -> None:
        exact = Report(FRESH, arrivals=2, ttfts_seconds=(0.3, 0.4), is_exact=True)
        estimate = Report(arrivals=3, ttfts_seconds=(0.9,), is_estimate=True)
        probe = Report(ttfts_seconds=(0.2,))
        load = combine([estimate, exact, probe], is_dedicated=False)
        assert (load.arrivals, load.ttfts_seconds) == (2, (0.3, 0.4, 0.2))
        load = combine([estimate, probe], is_dedicated=False)
        assert (load.arrivals, load.ttfts_seconds) == (3, (0.9, 0.2))

    @pytest.mark.parametrize(
        ("ages", "is_dedicated", "is_blind"),
        [
            ((), False, True),
            (STALE, False, True),
            (STALE + FRESH, False, False),
            ((), True, False),
            (STALE, True, False),
        ],
    )
    def test_blind_is_a_shared_pool_without_a_fresh_source(
        self, ages: tuple[SourceAge, ...], is_dedicated: bool, is_blind: bool
    ) -> None:
        assert combine([Report(ages)], is_dedicated=is_dedicated).is_blind is is_blind

    @given(REPORTS)
    def test_nothing_that_a_source_knows_is_lost(self, reports: list[Report]) -> None:
        load = combine(reports, is_dedicated=False)
        for report in reports:
            assert report.in_flight.fits(load.in_flight)
            assert report.waiting <= load.waiting
            assert report.oldest_waiting_seconds <= load.oldest_waiting_seconds
            assert load.is_congested or not report.is_congested
            if not report.is_estimate:
                assert report.arrivals <= load.arrivals
                assert set(report.ttfts_seconds) <= set(load.ttfts_seconds)
        assert load.is_blind is not any(age.is_fresh for age in load.sources)


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class TestFreshness:
    def poll(self, clock: Clock, answers: list[int | Exception]) -> Poll[int]:
        async def ask() -> int:
            answer = answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer

        return Poll("engine", "gpu", ask, monotonic=clock)

    def test_a_source_that_was_never_heard_is_not_fresh(self) -> None:
        poll = self.poll(Clock(), [])
        assert poll.age == SourceAge("engine", None, False)
        assert poll.fresh is None

    def test_an_answer_is_fresh_for_a_while_and_then_not(self) -> None:
        clock = Clock()
        poll = self.poll(clock, [7])
        asyncio.run(poll.once())
        clock.now += STALE_SECONDS - 0.1
        assert [answer.value for answer in (poll.fresh,) if answer] == [7]
        clock.now += 0.2
        assert poll.fresh is None
        assert poll.age.age_seconds == pytest.approx(STALE_SECONDS + 0.1)

    def test_a_failure_leaves_the_last_answer_to_grow_old_and_a_new_one_is_fresh_again(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        clock = Clock()
        poll = self.poll(clock, [7, SignalUnavailable("gone"), SignalUnavailable("gone"), ValueError("odd"), 8])
        with caplog.at_level("INFO"):
            for place in range(5):
                asyncio.run(poll.once())
                assert (poll.fresh is None) is (place in (2, 3))
                clock.now += 2.0
        told = [record.getMessage() for record in caplog.records if record.levelname != "ERROR"]
        assert told == [
            "pool gpu, signal engine: gone",
            "pool gpu, signal engine: ValueError: odd",
            "pool gpu, signal engine is back",
        ]
