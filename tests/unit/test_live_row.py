"""Rows in windows of any size: nothing is wider or higher than the window, and what matters most stays."""

import pytest

from tickets_batch.cli.live.row import ASCII, Glyphs, Line, Row, Tone, laid_out
from tickets_batch.words import printable

LONG = "a ticket that is in the chat's way can be asked back, at no cost to its attempts, and is taken up again later"


def texts(*rows: Row, columns: int = 80, lines: int = 40, glyphs: Glyphs = ASCII) -> list[str]:
    return [line.text for line in laid_out(rows, columns, lines, glyphs)]


def test_two_columns_where_there_is_room() -> None:
    assert texts(Row("now", name=None), Row("so many", "tickets")) == ["now", "  tickets    so many"]


def test_long_words_go_on_under_themselves() -> None:
    first, second = texts(Row(LONG, "limit"))
    assert first.startswith("  limit      a ticket")
    assert second.startswith(" " * 13 + "its attempts")


def test_a_narrow_window_has_one_column() -> None:
    shown = texts(Row("6 of   20 slots", "  chat"), Row(LONG, "limit"), columns=40)
    assert shown[:2] == ["chat: 6 of 20 slots", "limit: a ticket that is in the chat's"]
    assert all(line.startswith("  ") for line in shown[2:])


@pytest.mark.parametrize("columns", [20, 33, 59, 60, 80, 132])
@pytest.mark.parametrize("lines", [1, 3, 10])
def test_nothing_is_larger_than_the_window(columns: int, lines: int) -> None:
    rows = [Row(f"{LONG} {'x' * 200}", f"row {n}", weight=n, is_cut=n % 2 == 0) for n in range(8)]
    shown = texts(*rows, Row("50%", "done", share=0.5), columns=columns, lines=lines)
    assert 0 < len(shown) <= lines
    assert max(map(len, shown)) <= columns


def test_the_least_weighty_go_first_and_the_order_stays() -> None:
    rows = [Row("a", weight=9), Row("b", weight=1), Row("c", weight=5), Row("d", weight=7)]
    assert [line.strip() for line in texts(*rows, lines=3)] == ["a", "c", "d"]
    assert [line.strip() for line in texts(*rows, lines=1)] == ["a"]


def test_an_event_is_cut_and_says_so() -> None:
    (shown,) = texts(Row(LONG, "events", is_cut=True))
    assert (len(shown), shown[-3:]) == (80, " ..")


@pytest.mark.parametrize(
    ("share", "bar"), [(0.0, "-" * 40), (0.5, "#" * 20 + "-" * 20), (0.9999, "#" * 39 + "-"), (1.0, "#" * 40)]
)
def test_a_bar_is_full_only_at_the_end(share: float, bar: str) -> None:
    assert texts(Row("so far", "done", share=share)) == [f"  done       {bar} so far"]


def test_where_a_bar_has_no_room_there_is_none() -> None:
    assert texts(Row("so far, so good", "done", share=0.5), columns=25) == ["done: so far, so good"]


def test_a_server_that_answers_with_escape_sequences_moves_no_cursor() -> None:
    assert printable("HTTP 401: \x1b[2J\x9b1mgone\r\n") == "HTTP 401:  [2J 1mgone  "
    assert laid_out([Row("\x1b[31mred", tone=Tone.BAD)], 80, 1, ASCII) == [Line(" " * 13 + " [31mred", Tone.BAD)]
