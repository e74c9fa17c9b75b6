"""A command on a terminal of its own, of a given size: what a person at it would see."""

import contextlib
import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import termios
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.support.command import hear_interrupts

_SEQUENCE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_UP = "\x1b[1A"  # a view that is drawn anew begins with the cursor going up over it


class TerminalCommand:
    """A started process with stdin, stdout and stderr on the terminal; what it writes is read all the time."""

    def __init__(
        self, argv: Sequence[str], folder: Path, environment: Mapping[str, str], columns: int = 80, lines: int = 24
    ) -> None:
        self._master, slave = pty.openpty()
        self.resize(columns, lines)
        unset = ("NO_COLOR", "COLUMNS", "LINES")
        variables = {name: value for name, value in environment.items() if name not in unset}
        self._process = subprocess.Popen(
            argv,
            cwd=folder,
            env=variables | {"TERM": "xterm-256color"},
            stdin=slave,
            stdout=slave,
            stderr=slave,
            preexec_fn=hear_interrupts,
        )
        os.close(slave)
        self._written = bytearray()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def written(self) -> str:
        """All that it has written, with the sequences that move the cursor."""
        return bytes(self._written).decode(errors="replace")

    @property
    def view(self) -> str:
        """What was drawn last."""
        return _SEQUENCE.sub("", self.written.rpartition(_UP)[2]).replace("\r", "")

    def resize(self, columns: int, lines: int) -> None:
        """Give the window another size."""
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def wait(self, timeout_seconds: float = 60) -> int:
        """The exit code when it has ended and all was read. Raises TimeoutExpired when it does not end."""
        code = self._process.wait(timeout_seconds)
        self._reader.join(timeout_seconds)
        return code

    def close(self) -> None:
        """Kill it if it still runs."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        self._reader.join(10)
        os.close(self._master)

    def _read(self) -> None:
        with contextlib.suppress(OSError):  # the other side has gone
            while block := os.read(self._master, 65_536):
                self._written += block
