"""A night on a terminal: what a person sees who submits and waits."""

import pytest

from tests.engine.process import EngineProcess
from tests.support.night import PYTHON, Night
from tests.support.promise import SLOTS
from tests.support.terminal import TerminalCommand
from tests.support.wait import wait_until

pytestmark = pytest.mark.long


@pytest.mark.long
def test_a_waiting_submit_shows_the_night(night: Night, steady_engine: EngineProcess) -> None:
    night.configure(steady_engine.base_url, slots=SLOTS, chat=4, processes=1)
    night.tickets(f"Where is parcel {number}?" for number in range(150))
    shown = TerminalCommand(
        [*PYTHON, "submit", "--all", "--wait", "--deadline", "07:00"], night.folder, night.environment
    )
    try:
        wait_until(lambda: "tickets/s now" in shown.view and "1 scheduler, 1 worker" in shown.view, "the view", 60)
        view = shown.view
        for words in (
            "of 150 done",
            "07:00, in ",
            "pool gpu   batch",
            "no first token in the last",
            "readings engine ",
        ):
            assert words in view
        assert max(map(len, view.splitlines())) <= 80
        assert len(view.splitlines()) <= 24
        assert shown.wait(120) == 0
    finally:
        shown.close()
    assert "completed: 150 succeeded" in shown.view
    assert "1 scheduler" not in shown.view  # it has gone away
