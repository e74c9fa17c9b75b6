"""The frame of the command: help everywhere, one line for every fault, exit codes, and nothing loaded in vain."""

import errno
import os
import signal
import subprocess
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from tests.support.wait import wait_until
from tickets_batch.cli import frame
from tickets_batch.cli.frame import VERBS, Call, verb
from tickets_batch.cli.run import run
from tickets_batch.errors import UserError

COMMAND = (sys.executable, "-m", "tickets_batch")


@pytest.fixture(autouse=True)
def clean_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A directory without settings; and the signal handlers that a run installs are taken back."""
    for name in list(os.environ):
        if name.startswith(("TICKETS_BATCH", "OPENAI_")):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)}
    yield
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.fixture
def with_verb(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], Any]], None]:
    """Adds a verb `try` that does what it is given."""

    def add(body: Callable[[], Any]) -> None:
        @verb()
        def try_command() -> Any:
            """Try something."""
            return body()

        module = types.ModuleType("tickets_batch.cli.tried")
        module.__dict__["try_command"] = try_command
        monkeypatch.setitem(sys.modules, "tickets_batch.cli.tried", module)
        monkeypatch.setitem(VERBS, "try", ("tried", "Try something."))

    return add


def raising(error: BaseException) -> Callable[[], None]:
    def body() -> None:
        raise error

    return body


class TestHelp:
    @pytest.mark.parametrize("flag", ["-h", "--help"])
    def test_the_command_lists_its_verbs(self, capsys: pytest.CaptureFixture[str], flag: str) -> None:
        assert run([flag]) == 0
        shown = capsys.readouterr().out
        assert all(f"  {name} " in shown for name in VERBS)

    @pytest.mark.parametrize("name", VERBS)
    def test_every_verb_explains_itself(self, capsys: pytest.CaptureFixture[str], name: str) -> None:
        assert run([name, "-h"]) == 0
        shown = capsys.readouterr().out
        assert shown.startswith(f"Usage: tickets-batch {name}")
        if name != "db":
            assert "--config FILE" in shown
            assert "--debug" in shown

    def test_a_verb_says_the_same_in_the_list_as_for_itself(self) -> None:
        """The list is written without loading the verbs."""
        for name, (_, words) in VERBS.items():
            found = frame.command.get_command(click.Context(frame.command), name)
            assert found is not None
            assert found.get_short_help_str(200).rstrip(".").split()[0] == words.split()[0], name

    def test_the_version(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert run(["--version"]) == 0
        assert capsys.readouterr().out == "tickets-batch 0.1.0\n"

    def test_without_a_verb_help_is_shown_and_the_usage_is_wrong(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert run([]) == 2
        assert capsys.readouterr().err.startswith("Usage: tickets-batch")


class TestFaults:
    @pytest.mark.parametrize(
        ("arguments", "expected"),
        [
            (["statsu"], "tickets-batch: No such command 'statsu'. Did you mean 'status'? See tickets-batch -h\n"),
            (["--nope"], "tickets-batch: No such option '--nope'. See tickets-batch -h\n"),
            (["cancel"], "tickets-batch: Missing argument 'BATCH'. See tickets-batch cancel -h\n"),
            (
                ["worker", "--processes", "0"],
                "tickets-batch: Invalid value for '--processes': 0 is not in the range 1<=x<=256. "
                "See tickets-batch worker -h\n",
            ),
        ],
    )
    def test_wrong_usage_is_one_line_and_exit_code_2(
        self, capsys: pytest.CaptureFixture[str], arguments: list[str], expected: str
    ) -> None:
        assert run(arguments) == 2
        assert capsys.readouterr() == ("", expected)

    def test_wrong_settings_are_one_line_a_key_and_exit_code_2(self, capsys: pytest.CaptureFixture[str]) -> None:
        Path("tickets-batch.toml").write_text('deadline = "7"\nhom = "x"\n')
        assert run(["status"]) == 2
        told = capsys.readouterr().err.splitlines()
        assert [line.split("tickets-batch: tickets-batch.toml: ")[1].split()[0] for line in told] == ["deadline", "hom"]

    @pytest.mark.parametrize("arguments", [["--config", "gone.toml", "status"], ["status", "--config", "gone.toml"]])
    def test_the_settings_file_can_be_named_before_or_after_the_verb(
        self, capsys: pytest.CaptureFixture[str], arguments: list[str]
    ) -> None:
        assert run(arguments) == 2
        assert capsys.readouterr().err == (
            "tickets-batch: cannot read the settings in gone.toml: No such file or directory\n"
        )

    def test_what_a_person_can_mend(
        self, capsys: pytest.CaptureFixture[str], with_verb: Callable[[Callable[[], Any]], None]
    ) -> None:
        with_verb(raising(UserError("the door is closed: open it")))
        assert run(["try"]) == 1
        assert capsys.readouterr() == ("", "tickets-batch: the door is closed: open it\n")

    def test_what_nobody_expected(
        self, capsys: pytest.CaptureFixture[str], with_verb: Callable[[Callable[[], Any]], None]
    ) -> None:
        with_verb(raising(KeyError("x\ny")))
        assert run(["try"]) == 1
        assert capsys.readouterr().err == (
            "tickets-batch: unexpected error: KeyError: 'x\\ny'; run again with --debug to see where\n"
        )

    @pytest.mark.parametrize("arguments", [["--debug", "try"], ["try", "--debug"]])
    def test_debug_shows_where(
        self,
        capsys: pytest.CaptureFixture[str],
        with_verb: Callable[[Callable[[], Any]], None],
        arguments: list[str],
    ) -> None:
        with_verb(raising(KeyError("x")))
        assert run(arguments) == 1
        assert "Traceback" in capsys.readouterr().err

    def test_a_full_disk_is_named(
        self, capsys: pytest.CaptureFixture[str], with_verb: Callable[[Callable[[], Any]], None]
    ) -> None:
        with_verb(raising(OSError(28, "No space left on device", "/somewhere/x")))
        assert run(["try"]) == 1
        assert capsys.readouterr().err == "tickets-batch: No space left on device: /somewhere/x\n"


class TestExitCodes:
    @pytest.mark.parametrize(("returned", "code"), [(None, 0), (0, 0), (3, 3), (6, 6)])
    def test_a_verb_says_its_own(
        self, with_verb: Callable[[Callable[[], Any]], None], returned: int | None, code: int
    ) -> None:
        with_verb(lambda: returned)
        assert run(["try"]) == code

    def test_ctrl_c_is_130_and_quiet(
        self, capsys: pytest.CaptureFixture[str], with_verb: Callable[[Callable[[], Any]], None]
    ) -> None:
        with_verb(raising(KeyboardInterrupt()))
        assert run(["try"]) == 130
        assert capsys.readouterr().err.strip() == ""

    def test_sigterm_lets_with_blocks_end(self, with_verb: Callable[[Callable[[], Any]], None]) -> None:
        ended = []

        def body() -> None:
            try:
                os.kill(os.getpid(), signal.SIGTERM)
                wait_until(lambda: False, "a signal", 5)
            finally:
                ended.append(True)

        with_verb(body)
        with pytest.raises(SystemExit) as exit_:
            run(["try"])
        assert exit_.value.code == 143
        assert ended


class TestOutput:
    @pytest.mark.parametrize("arguments", [["-h"], ["status"], ["status", "--json"], ["doctor"], ["doctor", "--json"]])
    def test_a_reader_that_goes_away_is_no_fault_but_as_sigpipe_would_end_it(self, arguments: list[str]) -> None:
        read, write = os.pipe()
        os.close(read)
        done = subprocess.run([*COMMAND, *arguments], stdout=write, stderr=subprocess.PIPE, check=False)
        os.close(write)
        assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, b"")

    def test_the_same_where_it_goes_away_while_the_verb_writes(
        self, capsys: pytest.CaptureFixture[str], with_verb: Callable[[Callable[[], Any]], None]
    ) -> None:
        with_verb(raising(BrokenPipeError(errno.EPIPE, "Broken pipe")))
        assert run(["try"]) == 128 + signal.SIGPIPE
        assert capsys.readouterr() == ("", "")

    def test_an_end_that_a_verb_asks_for_itself_is_its_own(
        self, with_verb: Callable[[Callable[[], Any]], None]
    ) -> None:
        with_verb(raising(SystemExit(1)))
        with pytest.raises(SystemExit) as exit_:
            run(["try"])
        assert exit_.value.code == 1

    def test_output_that_cannot_be_written_is_one_line(self) -> None:
        with open("/dev/full", "w") as full:
            done = subprocess.run([*COMMAND, "-h"], stdout=full, stderr=subprocess.PIPE, check=False)
        assert (done.returncode, done.stderr) == (1, b"tickets-batch: No space left on device\n")


@pytest.mark.parametrize("arguments", [["-h"], ["status", "-h"], ["submit", "-h"], ["status"], ["status", "--json"]])
def test_readers_load_neither_celery_nor_the_model_client(arguments: list[str]) -> None:
    code = (
        "import sys\nfrom tickets_batch.cli.run import run\n"
        f"assert run({arguments!r}) == 0\n"
        "print('loaded:', *({'celery', 'kombu', 'openai', 'httpx2', 'alembic'} & set(sys.modules)))"
    )
    shown = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert shown.splitlines()[-1] == "loaded:"


def test_shared_options_reach_the_call() -> None:
    call = Call()
    frame.command.main(["--debug", "--config", "x.toml", "db", "-h"], standalone_mode=False, obj=call)
    assert (call.debug, call.config) == (True, Path("x.toml"))
