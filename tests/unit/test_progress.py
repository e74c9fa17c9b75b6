"""What a person who waits is shown."""

import io

import pytest

from tickets_batch.progress import Lines, Rate, Reading, display, duration, in_words


def reading(done: int, **changes: object) -> Reading:
    return Reading(**{"total": 100, "done": done, "failed": 0, "permits": 3, "limit": 4, "note": "", **changes})  # type: ignore[arg-type]


class TestRate:
    def test_nothing_is_known_until_something_is_done(self) -> None:
        rate = Rate()
        assert rate.per_second is None
        rate.add(0, 0)
        rate.add(10, 0)
        assert rate.per_second is None
        assert rate.seconds_left(100) is None

    def test_it_is_done_per_second(self) -> None:
        rate = Rate()
        rate.add(0, 0)
        rate.add(10, 20)
        assert rate.per_second == 2
        assert rate.seconds_left(80) == 40

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


class TestLines:
    def test_a_line_now_and_then_and_the_last_state_at_the_end(self) -> None:
        out, now = io.StringIO(), [0.0]
        with Lines(out, every_seconds=5, clock=lambda: now[0]) as lines:
            for second in range(12):
                now[0] = float(second)
                lines.show(reading(second))
        assert [line.split(" of ")[0] for line in out.getvalue().splitlines()] == ["0", "5", "10", "11"]

    def test_what_does_not_change_is_not_repeated(self) -> None:
        out, now = io.StringIO(), [0.0]
        with Lines(out, every_seconds=5, clock=lambda: now[0]) as lines:
            for second in range(60):
                now[0] = float(second)
                lines.show(reading(0, note="paused"))
        assert out.getvalue().splitlines() == ["0 of 100 done, 0 failed, permits 3 of 4, paused"]

    def test_what_happens_is_told_at_once(self) -> None:
        out = io.StringIO()
        with Lines(out) as lines:
            lines.say("worker-1 was killed")
            assert out.getvalue() == "worker-1 was killed\n"

    def test_no_terminal_no_bar(self) -> None:
        assert isinstance(display(io.StringIO()), Lines)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_on_a_terminal_there_is_one_live_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    out = Terminal()
    with display(out) as bar:
        bar.show(reading(40, failed=2))
        bar.say("worker-1 was killed [by someone]")
        bar.show(reading(50, failed=2))
    assert "worker-1 was killed [by someone]" in out.getvalue()
    assert "50 of 100 done, 2 failed" in out.getvalue()
    assert "permits 3 of 4" in out.getvalue()


class TestWords:
    def test_rate_and_time_left(self) -> None:
        rate = Rate()
        rate.add(0, 0)
        rate.add(10, 20)
        assert in_words(reading(20), rate) == "20 of 100 done, 0 failed, 2.0/s, 40 s left, permits 3 of 4"

    def test_chat_beside_it_is_shown(self) -> None:
        assert in_words(reading(0, chat=6), Rate()) == "0 of 100 done, 0 failed, permits 3 of 4, chat 6"

    def test_a_ledger_that_cannot_be_read_is_left_out(self) -> None:
        assert in_words(reading(0, permits=None, limit=None), Rate()) == "0 of 100 done, 0 failed"

    @pytest.mark.parametrize(
        ("seconds", "expected"),
        [(0.4, "0 s"), (59, "59 s"), (60, "1 min"), (3599, "1 h 0 min"), (12_000, "3 h 20 min")],
    )
    def test_durations(self, seconds: float, expected: str) -> None:
        assert duration(seconds) == expected
