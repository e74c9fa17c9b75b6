"""How fast something comes along, and how long that is in words."""

import pytest

from tickets_batch.progress import Rate, duration


class TestRate:
    def test_nothing_is_known_until_something_is_done(self) -> None:
        rate = Rate()
        assert rate.per_second is None
        rate.add(0, 0)
        rate.add(10, 0)
        assert rate.per_second is None

    def test_it_is_done_per_second(self) -> None:
        rate = Rate()
        rate.add(0, 0)
        rate.add(10, 20)
        assert rate.per_second == 2

    def test_only_the_window_counts(self) -> None:
        rate = Rate(window_seconds=10)
        for second in range(100):
            rate.add(second, 10 * second if second < 50 else 500 + (second - 50))
        assert rate.per_second == pytest.approx(1)

    def test_jobs_that_go_back_to_work_start_it_anew(self) -> None:
        rate = Rate()
        rate.add(0, 0)
        rate.add(10, 100)
        rate.add(20, 50)
        assert rate.per_second is None
        rate.add(30, 60)
        assert rate.per_second == 1


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(0.4, "0 s"), (59, "59 s"), (60, "1 min"), (3599, "1 h 0 min"), (12_000, "3 h 20 min")],
)
def test_durations(seconds: float, expected: str) -> None:
    assert duration(seconds) == expected
