"""One part of the product as a process: started, killed, stopped and started again, with a wall clock of its own."""

import os
import signal
import struct
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import psutil  # type: ignore[import-untyped]

from tests.support.command import Command
from tickets_batch.local.parent import PARENT_VARIABLE

STEPPED_CLOCK = Path(__file__).with_name("stepped_clock")
AGAIN_SECONDS = 0.5  # as a supervisor does: who ends by itself is started again


class Part:
    """A service of the command."""

    def __init__(
        self, name: str, arguments: Sequence[str], environment: Mapping[str, str], folder: Path, checkout: Path
    ) -> None:
        self.name = name
        self._arguments = arguments
        self._folder = folder
        self._clock = folder / f"{name}.clock"
        self.step_clock(0.0)
        path = f"{STEPPED_CLOCK}:{checkout}"
        tie = {PARENT_VARIABLE: str(os.getpid())}  # it ends with us, however we end
        self._environment = {**environment, **tie, "PYTHONPATH": path, "CHAOS_CLOCK": str(self._clock)}
        self._starts = 0
        self._command: Command | None = None
        self._read = 0  # characters of the present log that were judged
        self._unread = ""  # of those before it

    @property
    def is_alive(self) -> bool:
        return self._command is not None and self._command.code is None

    @property
    def talk(self) -> list[str]:
        """What the present process has written to stderr."""
        return self._command.talk if self._command is not None else []

    def start(self) -> None:
        """Start it, unless it runs."""
        if self.is_alive:
            return
        self._unread = self.news()
        self._starts += 1
        self._command = Command(
            [sys.executable, "-P", "-m", "tickets_batch", *self._arguments],
            folder=self._folder,
            environment=self._environment,
            output=self._folder / f"{self.name}-{self._starts}",
        )
        self._read = 0

    def kill(self) -> None:
        """SIGKILL, whatever state it is in."""
        if self._command is not None:
            self._command.close()

    def pause(self) -> None:
        """SIGSTOP, if it runs."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def ask_to_stop(self) -> None:
        """SIGTERM, which it hears even where it was paused."""
        self._signal(signal.SIGTERM)
        self._signal(signal.SIGCONT)

    def stop(self) -> None:
        """Wait for one that was asked to stop, and end it by force where that takes too long."""
        if self._command is not None and self.is_alive:
            with suppress(AssertionError):
                self._command.wait(10)
            self._command.close()

    def step_clock(self, seconds: float) -> None:
        """From now on its wall clock is off by so much."""
        with self._clock.open("r+b" if self._clock.exists() else "wb") as file:
            file.write(struct.pack("d", seconds))

    def news(self) -> str:
        """What it has written since this was asked last."""
        text = self._command.err if self._command is not None else ""
        new, self._read = self._unread + text[self._read :], len(text)
        self._unread = ""
        return new

    def _signal(self, number: signal.Signals) -> None:
        if self._command is not None and self.is_alive:
            with suppress(ProcessLookupError):
                self._command.send(number)


class Tree:
    """A process and its children, which are paused and killed as one."""

    def __init__(self, pid: int | None) -> None:
        self._processes: list[psutil.Process] = []
        with suppress(psutil.NoSuchProcess):  # two faults may befall it at one time
            root = psutil.Process(pid) if pid is not None else None
            self._processes = [root, *root.children(recursive=True)] if root is not None else []

    def send(self, number: signal.Signals) -> None:
        for process in self._processes:
            with suppress(psutil.NoSuchProcess):
                process.send_signal(number)

    def kill(self) -> None:
        """SIGKILL, and wait until they are gone."""
        self.send(signal.SIGKILL)
        psutil.wait_procs(self._processes, timeout=10)
