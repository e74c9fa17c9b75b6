"""A long run that is stopped in the middle says what was survived so far, and leaves nothing behind."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest

from tests.support.command import hear_interrupts
from tests.support.night import CHECKOUT
from tests.support.wait import wait_until

MARK = "CHAOS_UNDER_TEST"


@pytest.mark.rare
@pytest.mark.timeout(300)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_run_that_is_stopped_leaves_nothing_running(tmp_path: Path, number: signal.Signals) -> None:
    with (tmp_path / "out").open("wb") as out:
        run = subprocess.Popen(
            [sys.executable, "-m", "tests.chaos", "--plans", "200", "--lanes", "2"],
            cwd=CHECKOUT,
            env={**os.environ, MARK: str(tmp_path), "TMPDIR": str(tmp_path)},
            stdout=out,
            preexec_fn=hear_interrupts,
        )
    try:
        wait_until(lambda: _said(tmp_path).startswith("1/200 seed "), "a first verdict", 120, 0.2)
        assert len(_running(tmp_path)) > 10
        run.send_signal(number)
        assert run.wait(90) == (-number if number == signal.SIGKILL else 128 + number)
        wait_until(lambda: not _running(tmp_path), "all to be gone", 60, 0.2)
        assert (number == signal.SIGKILL) != (" of 200 plans passed, " in _said(tmp_path))
        assert not list(tmp_path.glob("chaos-*"))
    finally:
        run.kill()
        run.wait()


def _said(folder: Path) -> str:
    return (folder / "out").read_text()


def _running(folder: Path) -> list[str]:
    """The command lines of everything that was started by the run, whoever started it."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        try:
            if process.environ().get(MARK) == str(folder) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(" ".join(process.info["cmdline"] or []))
        except psutil.Error:
            continue
    return found
