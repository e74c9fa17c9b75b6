"""Moments in which the machine itself stood still: what nobody ran, nobody could renew."""

import threading
import time
from types import TracebackType
from typing import Self

from tests.chaos.evidence import Incident
from tests.chaos.plan import EVERYTHING, Fault

LOOK_SECONDS = 0.05
STILL_SECONDS = 1.0  # a look that comes later than this was kept from coming


class Stillness:
    """Looks at the clock all the time while it is entered; `found` are pauses of everything that no plan asked for."""

    def __init__(self) -> None:
        self.found: list[Incident] = []
        self._leaving = threading.Event()
        self._thread = threading.Thread(target=self._look, name="stillness", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leaving.set()
        self._thread.join()

    def _look(self) -> None:
        before, is_over = time.monotonic(), False
        while not is_over:
            is_over = self._leaving.wait(LOOK_SECONDS)
            now = time.monotonic()
            if (late_seconds := now - before - LOOK_SECONDS) > STILL_SECONDS:
                ended_at = time.time()
                fault = Fault(0.0, "pause", EVERYTHING, round(late_seconds, 2))
                self.found.append(Incident(fault, ended_at - late_seconds, ended_at))
            before = now
