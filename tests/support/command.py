"""One run of the command as a child process, whose output can be read while it runs."""

import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path


def hear_interrupts() -> None:
    """Tests that run in the background ignore Ctrl-C, and hand that down; who types a command does not."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Command:
    """A started process. Its output goes to files, so that it never waits for a reader."""

    def __init__(
        self,
        argv: Sequence[str],
        *,
        folder: Path,
        environment: Mapping[str, str],
        output: Path,
        stdout: Path | None = None,
    ) -> None:
        self.argv = tuple(argv)
        self._out = stdout or output.with_name(output.name + ".out")
        self._err = output.with_name(output.name + ".err")
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self._process = subprocess.Popen(
                self.argv,
                cwd=folder,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                preexec_fn=hear_interrupts,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def code(self) -> int | None:
        """The exit code, None while it runs; minus the signal's number when it was killed."""
        return self._process.poll()

    @property
    def out(self) -> str:
        """What it has written to stdout so far."""
        return self._out.read_text(encoding="utf-8")

    @property
    def err(self) -> str:
        """What it has written to stderr so far."""
        return self._err.read_text(encoding="utf-8")

    @property
    def talk(self) -> list[str]:
        """The lines of stderr."""
        return self.err.splitlines()

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def wait(self, timeout_seconds: float = 60) -> int:
        """The exit code when it has ended. Raises AssertionError when it does not; it then goes on."""
        try:
            return self._process.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self} still runs after {timeout_seconds:g} s\n{self.err}") from None

    def close(self) -> None:
        """Kill it if it still runs."""
        if self.code is None:
            self._process.kill()
        self._process.wait()

    def __str__(self) -> str:
        return " ".join(self.argv[-6:])
