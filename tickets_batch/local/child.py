"""One program that is kept running: started, watched, started again with growing pauses, and stopped."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from tickets_batch.errors import UserError
from tickets_batch.local.parent import PARENT_VARIABLE, tied

FIRST_PAUSE_SECONDS = 0.2
LONGEST_PAUSE_SECONDS = 30.0
HEALTHY_SECONDS = 30.0  # a life this long makes the next pause the first again
LARGEST_LOG_BYTES = 20_000_000


@dataclass(frozen=True, slots=True)
class Program:
    """What is to be run.

    `service` is the group in which it is stopped, `log` takes what it writes (None: our own stderr), `environment` is
    the whole of its environment (None: ours), and `is_ready` answers whether it can be used.
    """

    name: str
    service: str
    argv: tuple[str, ...]
    log: Path | None
    environment: Mapping[str, str] | None = None
    is_ready: Callable[[], bool] | None = None


class Child:
    """A program and its process. All methods are called from one thread, which lives as long as the process.

    `repeats` says that it has just ended by itself as it did before, soon after its start: it is no news.
    """

    def __init__(self, program: Program, clock: Callable[[], float] = time.monotonic) -> None:
        self.program = program
        self.starts = 0
        self.repeats = False
        self._clock = clock
        self._process: subprocess.Popen[bytes] | None = None
        self._started_at = 0.0
        self._start_again_at: float | None = None
        self._pause_seconds = 0.0
        self._ending: tuple[str, str] | None = None

    @property
    def pid(self) -> int | None:
        """The number of the running process, None when none runs."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    def start(self) -> None:
        """Start the process, tied to this one, with its output in the log. Raises UserError when that fails."""
        ours = os.environ if self.program.environment is None else self.program.environment
        try:
            with _opened(self.program.log) as log:
                self._process = subprocess.Popen(
                    tied(self.program.argv),
                    env={**ours, PARENT_VARIABLE: str(os.getpid())},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,  # Ctrl-C is for the supervisor, who stops its children in order
                )
        except OSError as error:
            raise UserError(f"cannot start {self.program.name}: {error.strerror}: {error.filename}") from error
        self.starts += 1
        self._started_at = self._clock()
        self._start_again_at = None

    def wait_until_ready(self, timeout_seconds: float, give_up: Callable[[], bool]) -> None:
        """Wait for the first sign of life. Raises UserError when it ends instead, or stays silent for too long."""
        deadline = self._clock() + timeout_seconds
        while self.program.is_ready is not None and not give_up() and not self.program.is_ready():
            if self.pid is None:
                raise UserError(f"{self.program.name} {self._how_it_ended()} at its start{self._last_words()}")
            if self._clock() > deadline:
                raise UserError(f"{self.program.name} does not answer after {timeout_seconds:g} s{self._last_words()}")
            time.sleep(0.02)

    def revive(self) -> str | None:
        """Start the process again if it has ended and its pause is over; the news, if there is any."""
        if self._process is None or self._process.poll() is None:
            return None
        if self._start_again_at is None:
            return self._news()
        if self._clock() >= self._start_again_at:
            try:
                self.start()
            except UserError as error:
                return f"{error}, {self._rest()}"
        return None

    def _news(self) -> str:
        how, why = self._how_it_ended(), self._last_words()
        was_killed = self._process is not None and (self._process.returncode or 0) < 0
        self.repeats = self._ending == (how, why) and not self._was_healthy and not was_killed
        self._ending = how, why
        return f"{self.program.name} {how}, {self._rest()}{why}"

    @property
    def _was_healthy(self) -> bool:
        return self._clock() - self._started_at >= HEALTHY_SECONDS

    def _rest(self) -> str:
        """Put the next start off, each time for longer until the process has lived for a while."""
        is_first = self._pause_seconds == 0.0 or self._was_healthy
        self._pause_seconds = FIRST_PAUSE_SECONDS if is_first else min(LONGEST_PAUSE_SECONDS, self._pause_seconds * 2)
        self._start_again_at = self._clock() + self._pause_seconds
        return f"starting it again in {self._pause_seconds:g} s"

    def ask_to_stop(self) -> None:
        """Send SIGTERM."""
        if self.pid is not None and self._process is not None:
            self._process.terminate()

    def end(self, until: float) -> None:
        """Wait for the end until `until` on the clock, then kill, and collect the process."""
        if self._process is None:
            return
        try:
            self._process.wait(max(0.0, until - self._clock()))
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def _how_it_ended(self) -> str:
        code = self._process.returncode if self._process else None
        if code is not None and code < 0:
            return f"was killed by {signal.Signals(-code).name}"
        return f"ended with exit code {code}"

    def _last_words(self) -> str:
        """The last line of the log, which most often says why; of a killed process it says nothing."""
        if self.program.log is None:
            return ""
        if self._process is not None and (self._process.returncode or 0) < 0:
            return f" (log: {self.program.log})"
        try:
            with self.program.log.open("rb") as log:
                log.seek(max(0, self.program.log.stat().st_size - 4096))
                lines = log.read().decode("utf-8", "replace").strip().splitlines()
        except OSError:
            lines = []
        return f": {lines[-1][:200]} (log: {self.program.log})" if lines else f" (log: {self.program.log})"


@contextmanager
def _opened(log: Path | None) -> Iterator[IO[bytes] | None]:
    """The log, to be appended to; one that has grown too large is put aside first."""
    if log is None:
        yield None
        return
    if log.exists() and log.stat().st_size > LARGEST_LOG_BYTES:
        log.replace(log.with_name(log.name + ".1"))
    with log.open("ab") as file:
        yield file
