"""The night from cron: quiet when all is well, one at a time, and with what the settings refer to."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.support.command import Command
from tests.support.night import CHECKOUT
from tests.support.wait import wait_until

CRON = CHECKOUT / "deploy" / "cron"
# Stands for the command: ends as it is told, and tells how it was called. HOLD: it waits; LEAVE: a child stays behind.
STAND_IN = """#!/bin/sh
echo "$* key=${LLM_API_KEY:-none}" >> calls
[ "$1" = submit ] || exit "${RESULTS_CODE:-0}"
[ -z "${HOLD:-}" ] || while [ ! -e go ]; do sleep 0.05; done
[ -z "${LEAVE:-}" ] || sleep 30 > /dev/null 2>&1 &
echo "what it said" >&2
[ "$CODE" -eq 1 ] || echo batch_1
exit "$CODE"
"""


class Cron:
    """A folder as the script finds it, with a stand-in for the command."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "night"
        self.programs = folder / "bin"
        self.programs.mkdir()
        self.folder.mkdir()
        (self.programs / "tickets-batch").write_text(STAND_IN, encoding="utf-8")
        (self.programs / "tickets-batch").chmod(0o755)
        self.environment = {
            "PATH": f"{self.programs}{os.pathsep}{os.environ['PATH']}",
            "TICKETS_BATCH_FOLDER": str(self.folder),
        }

    def start(self, code: int, *arguments: str, **more: str) -> Command:
        return Command(
            [str(CRON / "tickets-batch-night"), *arguments],
            folder=Path("/"),
            environment={**self.environment, "CODE": str(code), **more},
            output=self.folder / f"run-{len(list(self.folder.iterdir()))}",
        )

    def run(self, code: int, *arguments: str, **more: str) -> Command:
        """The script from its beginning to its end; it must end as the command did."""
        ran = self.start(code, *arguments, **more)
        assert ran.wait() == code
        return ran

    @property
    def calls(self) -> list[str]:
        file = self.folder / "calls"
        return file.read_text(encoding="utf-8").splitlines() if file.exists() else []


@pytest.fixture
def cron(tmp_path: Path) -> Cron:
    return Cron(tmp_path)


def test_a_folder_that_is_not_there_is_one_line(cron: Cron) -> None:
    ran = cron.run(1, TICKETS_BATCH_FOLDER="/nowhere")
    assert ran.err == "cannot enter /nowhere: set TICKETS_BATCH_FOLDER to the folder with tickets-batch.toml\n"
    assert cron.calls == []


def test_a_good_night_is_quiet(cron: Cron) -> None:
    (cron.folder / "environment").write_text("LLM_API_KEY='a key'\n", encoding="utf-8")
    ran = cron.run(0)
    assert (ran.out, ran.err) == ("", "")
    assert cron.calls == [
        "submit --date today --wait key=a key",
        "results batch_1 -o results/batch_1.csv key=a key",
    ]
    (log,) = (cron.folder / "log").iterdir()
    assert log.read_text(encoding="utf-8") == "what it said\n"
    assert log.stat().st_mode & 0o077 == 0


def test_each_run_has_a_log_of_its_own_even_within_a_second(cron: Cron) -> None:
    (cron.programs / "date").write_text("#!/bin/sh\necho 2026-11-30-220000\n", encoding="utf-8")
    (cron.programs / "date").chmod(0o755)
    cron.run(0)
    cron.run(0)
    assert [log.read_text(encoding="utf-8") for log in (cron.folder / "log").iterdir()] == ["what it said\n"] * 2


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (1, "it went wrong"),
        (3, "some tickets have no label"),
        (4, "tickets-batch retry batch_1 does the rest"),
        (5, "somebody has cancelled it"),
        (6, "no ticket can succeed"),
    ],
)
def test_whatever_else_happens_is_mailed_and_is_the_exit_code(cron: Cron, code: int, words: str) -> None:
    mail = cron.run(code, "yesterday").out
    assert words in mail
    assert f"exit code {code}; the last lines of {cron.folder}/log/" in mail
    assert mail.endswith("what it said\n")
    assert cron.calls[0].startswith("submit --date yesterday --wait")
    assert len(cron.calls) == (1 if code == 1 else 2)


def test_labels_that_cannot_be_written_are_mailed(cron: Cron) -> None:
    ran = cron.start(0, RESULTS_CODE="1")
    assert ran.wait() == 1
    assert "the labels could not be written" in ran.out


def test_two_nights_do_not_run_at_once(cron: Cron) -> None:
    first = cron.start(0, HOLD="yes")
    wait_until(lambda: cron.calls, "the first to begin")
    second = cron.start(0)
    assert second.wait() == 1
    assert "another night is still at work here" in second.out
    assert len(cron.calls) == 1
    (cron.folder / "go").touch()
    assert first.wait() == 0


def test_what_a_night_leaves_behind_holds_up_no_other(cron: Cron) -> None:
    cron.run(0, LEAVE="yes")
    cron.run(0)


def test_the_crontab_calls_what_is_there() -> None:
    crontab = (CRON / "crontab").read_text(encoding="utf-8")
    settings = dict(line.split("=", 1) for line in crontab.splitlines() if "=" in line and not line.startswith("#"))
    assert {"MAILTO", "PATH", "TICKETS_BATCH_FOLDER"} <= settings.keys()
    (line,) = (line for line in crontab.splitlines() if line[:1].isdigit())
    program = line.split()[6]
    assert (CHECKOUT / program.removeprefix("/srv/tickets/")).stat().st_mode & 0o111
    assert subprocess.run(["sh", "-n", str(CRON / "tickets-batch-night")], check=False).returncode == 0
