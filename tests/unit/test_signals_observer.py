"""What of an engine's load is chat."""

from hypothesis import given
from hypothesis import strategies as st

from scheduler.signals.observer import Observed, Observer, Own, Surplus
from scheduler.signals.replicas import Scrape

TARGET = 0.8


def seen(*rounds: tuple[Scrape, Own]) -> list[Observed]:
    observer = Observer(TARGET)
    return [observer.take([scrape], [scrape], own) for scrape, own in rounds]


def counting(first_tokens: int, ttft_seconds: float = 0.0, late: int = 0) -> Scrape:
    return Scrape(0, 0, 0, None, first_tokens, late, ttft_seconds, None, counts_first_tokens=True)


class TestInFlight:
    def test_batch_alone_is_no_chat(self) -> None:
        assert [each.slots for each in seen((Scrape(10, 2, 2), Own(12)), (Scrape(12, 0, 0), Own(12)))] == [0, 0]

    def test_what_runs_and_waits_beyond_batch_is_chat(self) -> None:
        assert seen((Scrape(10, 3, 3), Own(8)), (Scrape(10, 3, 3), Own(8)))[-1].slots == 5

    def test_the_smaller_of_two_scrapes_in_a_row_counts(self) -> None:
        rounds = [(Scrape(running, 0, 0), Own(8)) for running in (9, 20, 9, 14, 15)]
        assert [each.slots for each in seen(*rounds)] == [1, 1, 1, 1, 6]

    def test_several_addresses_add_up_before_batch_is_taken_off(self) -> None:
        scrapes = [Scrape(6, 1, 1), Scrape(7, 0, 0)]
        assert Observer(TARGET).take(scrapes, scrapes, Own(10)).slots == 4

    @given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40), st.integers(0, 40)), min_size=1))
    def test_never_negative_and_never_more_than_the_engine_holds(self, rounds: list[tuple[int, int, int]]) -> None:
        results = seen(*((Scrape(running, waiting, waiting), Own(held)) for running, waiting, held in rounds))
        for (running, waiting, held), observed in zip(rounds, results, strict=True):
            assert 0 <= observed.slots <= max(0, running + waiting - held)
            assert 0 <= observed.waiting <= waiting


class TestCongestion:
    def test_waiting_beyond_our_own_twice_in_a_row(self) -> None:
        rounds = [(Scrape(20, waiting, waiting), Own(20, 2)) for waiting in (3, 2, 3, 3, 2)]
        assert [each.is_congested for each in seen(*rounds)] == [False, False, False, True, False]

    def test_what_waits_for_something_else_than_room_is_none(self) -> None:
        rounds = [(Scrape(20, 5, 0), Own(20))] * 3
        assert not any(each.is_congested for each in seen(*rounds))

    def test_a_mean_queue_time_over_half_the_target(self) -> None:
        rounds = [(Scrape(1, 0, 0, queue_seconds=seconds), Own(1)) for seconds in (0.39, 0.41, None)]
        assert [each.is_congested for each in seen(*rounds)] == [False, True, False]


class TestArrivals:
    def test_first_tokens_beyond_our_own(self) -> None:
        rounds = [(counting(0), Own()), (counting(5), Own(first_tokens=2)), (counting(9), Own(first_tokens=6))]
        assert [each.arrivals for each in seen(*rounds)] == [0, 3, 0]

    def test_what_came_before_we_looked_is_no_news(self) -> None:
        assert seen((counting(50, 20.0), Own()))[0].arrivals == 0

    def test_the_late_ones_that_are_surely_chats_stand_over_the_target(self) -> None:
        rounds = [(counting(0), Own()), (counting(4, 4.0, late=2), Own(first_tokens=1, late=1))]
        ttfts = seen(*rounds)[-1].ttfts_seconds
        assert sorted(each > TARGET for each in ttfts) == [False, False, True]

    def test_late_first_tokens_of_our_own_are_not_chats(self) -> None:
        rounds = [(counting(0), Own()), (counting(4, 8.0, late=3), Own(first_tokens=3, late=3))]
        assert [each <= TARGET for each in seen(*rounds)[-1].ttfts_seconds] == [True]

    def test_where_no_first_token_is_counted_every_rise_is_an_arrival(self) -> None:
        rounds = [(Scrape(running, 0, 0), Own()) for running in (2, 2, 5, 5, 1, 2)]
        assert [each.arrivals for each in seen(*rounds)] == [0, 0, 0, 3, 0, 0]


class TestSurplus:
    def test_ours_that_are_told_first_are_made_up_for(self) -> None:
        surplus = Surplus()
        assert [surplus.take(*each) for each in ((0, 3), (3, 3), (4, 3))] == [0, 0, 1]

    def test_a_miscount_of_ours_does_not_hide_what_comes_after(self) -> None:
        surplus = Surplus()
        surplus.take(0, 50)
        surplus.take(0, 50)
        surplus.take(0, 50)
        assert surplus.take(4, 50) == 4

    @given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=60))
    def test_in_the_long_run_it_is_the_difference(self, rounds: list[tuple[int, int]]) -> None:
        """Ours are told in the round in which the engine counts them, or in the one before."""
        surplus = Surplus()
        whole = part = told = early = 0
        for chat, ours in [*rounds, (0, 0)]:
            part += ours
            whole += chat + early
            early = ours
            told += surplus.take(whole, part)
        assert told == sum(chat for chat, _ in rounds)
