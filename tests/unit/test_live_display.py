"""The two displays: plain lines for logs and mails, and the view that is drawn anew on a terminal."""

import io
import re

import pytest

from tests.support.live import ID, batch, event, look, pool
from tests.support.readings import BERLIN, DEDICATED, reading
from tests.support.store import START
from tickets_batch.cli.live.display import display
from tickets_batch.cli.live.first_tokens import Heard
from tickets_batch.cli.live.lines import Lines, in_words
from tickets_batch.cli.live.look import Look, PoolLook

COLOUR = re.compile(r"\x1b\[[0-9;]*m")
SEQUENCE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """One of 80 columns and 24 lines."""
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in (("TERM", "xterm-256color"), ("COLUMNS", "80"), ("LINES", "24")):
        monkeypatch.setenv(name, value)
    return Terminal()


class Plain:
    """Lines on a clock that the test sets."""

    def __init__(self) -> None:
        self.out = io.StringIO()
        self.now = 0.0
        self.lines = Lines(self.out, BERLIN, monotonic=lambda: self.now)

    def show(self, seen: Look, at: float) -> None:
        self.now = at
        self.lines.show(seen)

    @property
    def said(self) -> list[str]:
        return self.out.getvalue().splitlines()


class TestLines:
    def test_often_in_the_first_minute_then_one_a_minute_and_the_last_at_the_end(self) -> None:
        plain = Plain()
        with plain.lines:
            for second in range(200):
                plain.show(look(batch(succeeded=second, failed=0, pending=39_991 - second)), at=second)
        done = [int(line.split()[1].replace(",", "")) for line in plain.said]
        assert done == [*range(0, 60, 5), 115, 175, 199]

    def test_what_does_not_change_is_not_repeated(self) -> None:
        plain = Plain()
        with plain.lines:
            for second in range(300):
                plain.show(look(), at=second)
        assert len(plain.said) == 1

    def test_what_is_amiss_is_told_when_it_begins(self) -> None:
        plain = Plain()
        for second, notes in enumerate([(), ("no worker",), ("no worker",), (), ("no worker",)]):
            plain.show(look(notes=notes), at=second)
        assert plain.said[1:] == ["no worker", "no worker"]

    def test_what_happens_to_the_batch_is_told_and_what_had_happened_is_not(self) -> None:
        plain = Plain()
        before = event("submitted", seconds_ago=60, added=40_000)
        plain.show(look(events=(before,)), at=0)
        paused, resumed = event("paused", seconds_ago=-4), event("running", seconds_ago=-5)
        flapped = event("limit", name="gpu", seconds_ago=-5, to="floor")
        plain.show(look(events=(resumed, flapped, paused, before)), at=1)
        plain.show(look(events=(resumed, flapped, paused, before)), at=2)
        assert plain.said[1:] == ["23:00:04 paused", "23:00:05 resumed"]

    def test_what_blocks_it_is_told_once(self) -> None:
        plain = Plain()
        plain.show(look(), at=0)
        blocked = event("blocked", seconds_ago=-4, why="HTTP 401")
        seen = look(batch(blocked="HTTP 401"), notes=("blocked: HTTP 401; goes on by itself",), events=(blocked,))
        plain.show(seen, at=1)
        plain.show(seen, at=9)
        assert [line for line in plain.said if "401" in line] == ["blocked: HTTP 401; goes on by itself"]
        plain.show(look(events=(event("unblocked", seconds_ago=-9), blocked)), at=10)
        assert plain.said[-1] == "23:00:09 goes on: it is blocked no more"

    def test_no_terminal_no_view(self, terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
        assert isinstance(display(BERLIN, io.StringIO()), Lines)
        monkeypatch.setenv("TERM", "dumb")
        assert isinstance(display(BERLIN, terminal), Lines)


class TestOneLine:
    def test_all_that_matters(self) -> None:
        assert in_words(look(), BERLIN) == (
            "20,016 of 40,000 done, 12 failed, 0.8/s, ends 05:40 to 06:10 (on track), deadline 07:00, "
            "batch 9 of 12 slots (headroom), chat 6, first token 0.52 s (p95; target 0.80 s)"
        )

    def test_what_is_not_known_is_left_out(self) -> None:
        shown = look(batch(deadline_at=None), forecast=None, pools=(PoolLook("gpu", None, 0.8, Heard()),))
        assert in_words(shown, BERLIN) == "20,016 of 40,000 done, 12 failed, 0.8/s, 6 h 56 min left"
        old = look(forecast=None, pools=(pool(heard=Heard(9, 0.1, 0.2, is_of_late=False)),))
        assert in_words(old, BERLIN).endswith("batch 9 of 12 slots (headroom), chat 6")

    def test_several_pools_are_added_and_the_worst_of_their_chats_is_told(self) -> None:
        own = pool(reading(capacity=DEDICATED), name="deep", heard=Heard())
        late = pool(name="other", heard=Heard(3, 0.9, 1.2))
        assert in_words(look(pools=(pool(), own, late)), BERLIN).endswith(
            "batch 18 of 44 slots (headroom, dedicated), chat 12, first token 1.20 s (p95; target 0.80 s)"
        )

    def test_what_holds_it_up(self) -> None:
        assert in_words(look(batch(blocked="HTTP 401")), BERLIN).endswith(", blocked"), "a note says why"


class TestScreen:
    def shown(self, terminal: Terminal, *looks: Look, told: str = "") -> str:
        with display(BERLIN, terminal) as screen:
            for one in looks:
                screen.show(one)
            if told:
                screen.say(told)
            return terminal.getvalue()

    def test_it_is_drawn_in_its_place(self, terminal: Terminal) -> None:
        seen = self.shown(terminal, look(), look(batch(succeeded=30_004, pending=9_975)))
        assert seen.count("\x1b[1A") >= 10  # the cursor goes up over what was drawn
        last = SEQUENCE.sub("", seen[seen.rindex("\x1b[1A") :])
        assert "75%, 30,016 of 40,000 done" in last
        assert "first token 0.31 s (p50), 0.52 s (p95), target 0.80 s" in last
        assert max(map(len, last.splitlines())) <= 80

    def test_after_a_good_end_it_goes_away(self, terminal: Terminal) -> None:
        self.shown(terminal, look())
        assert terminal.getvalue().rstrip().endswith("\x1b[2K")

    def test_after_any_other_end_it_stays_and_the_cursor_comes_back(self, terminal: Terminal) -> None:
        def interrupted() -> None:
            with display(BERLIN, terminal) as screen:
                screen.show(look())
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            interrupted()
        *_, left = terminal.getvalue().split("\x1b[2K")
        assert "17:00:00 submitted" in left
        assert left.endswith("\x1b[?25h")

    def test_what_is_told_stands_above_it(self, terminal: Terminal) -> None:
        seen = SEQUENCE.sub("", self.shown(terminal, look(), told="worker-1 was killed [by someone]"))
        assert ID in seen[seen.index("worker-1 was killed [by someone]") :]

    def test_no_colour_where_none_is_wanted(self, terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
        assert any("3" in found for found in COLOUR.findall(self.shown(terminal, look())))
        monkeypatch.setenv("NO_COLOR", "1")
        plain = self.shown(Terminal(), look(notes=("no worker is alive",)))
        assert not [found for found in COLOUR.findall(plain) if re.search(r"[34]\d", found)]
        assert "no worker is alive" in plain

    def test_a_short_and_narrow_window(self, terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("COLUMNS", "30")
        monkeypatch.setenv("LINES", "7")
        lines = SEQUENCE.sub("", self.shown(terminal, look())).splitlines()
        assert len(lines) <= 6
        assert max(map(len, lines)) <= 30

    def test_a_terminal_without_line_drawing(self, terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(Terminal, "encoding", "ascii", raising=False)
        self.shown(terminal, look()).encode("ascii")


def test_the_time_is_that_of_the_look_not_of_the_reader() -> None:
    plain = Plain()
    plain.show(look(at=START), at=0)
    assert plain.said[0].startswith("23:00:00 20,016 of")
