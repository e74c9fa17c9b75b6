"""Keeps a set of programs running, and leaves none behind."""

import itertools
import time
from collections.abc import Callable

from tickets_batch.local.child import Child, Program

READY_SECONDS = 15.0
TICK_SECONDS = 0.1


class Supervisor:
    """Starts programs in order, watches them in `tick`, and stops them in reverse order.

    Everything is called from one thread that lives as long as the programs: the kernel ends them with that thread.
    `said` is told, in one line, when a program ended and is started again; of one that ends in the same way again and
    again only once.
    """

    def __init__(
        self,
        said: Callable[[str], None],
        *,
        stop_grace_seconds: float = 10.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._said = said
        self._stop_grace_seconds = stop_grace_seconds
        self._clock = clock
        self._children: list[Child] = []

    def start(self, program: Program, give_up: Callable[[], bool] = lambda: False) -> None:
        """Start a program and wait until it is ready. Raises UserError when it does not get there."""
        child = Child(program, self._clock)
        self._children.append(child)
        child.start()
        child.wait_until_ready(READY_SECONDS, give_up)

    def tick(self) -> bool:
        """Start again what has ended and rested; True when some process was started or has ended."""
        before = self.pids()
        for child in self._children:
            if (news := child.revive()) and not child.repeats:
                self._said(news)
        return self.pids() != before

    def pids(self, service: str | None = None) -> dict[str, int]:
        """Names and process numbers of the programs that run now."""
        return {
            child.program.name: child.pid
            for child in self._children
            if child.pid is not None and service in (None, child.program.service)
        }

    def stop(self) -> None:
        """Stop all programs, the last service first: SIGTERM, a grace, SIGKILL."""
        for _, group in itertools.groupby(reversed(self._children), key=lambda child: child.program.service):
            children = list(group)
            for child in children:
                child.ask_to_stop()
            until = self._clock() + self._stop_grace_seconds
            for child in children:
                child.end(until)
        self._children.clear()
