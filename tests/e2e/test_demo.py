"""The demo as a person runs it, on the real model: it says what the chat felt, and leaves nothing behind."""

import re
from pathlib import Path

import pytest

from tests.support.night import Night

LINES = (
    r"\d+ of 64 labels \(\d+%\) are those that people gave by hand\.",
    r"  alone +\d+\.\d\d s +\d+\.\d\d s +[1-9]\d* +0",
    r"  beside batch +\d+\.\d\d s +\d+\.\d\d s +[1-9]\d* +\d+",
    r"  64 tickets in [1-9]\d* s, [1-9]\d* a minute",
    r"  up to 2 of 4 slots at a time",
    r"  only 1, its floor, for \d+ s: the chat needed the rest",
    r"  \d+ tickets? asked back in the middle and done again: a question came first",
)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_it_says_what_the_chat_felt_and_leaves_nothing_behind(night: Night, tmp_path: Path) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    night.environment["TMPDIR"] = str(temporary)
    ended = night.run("demo", code=0, timeout_seconds=840)
    assert [line for line in LINES if not re.search(f"^{line}$", ended.out, re.MULTILINE)] == []
    assert "blind" not in ended.err
    assert list(temporary.iterdir()) == []
    assert night.processes() == []
