"""What the processes of a night cost while they live: CPU and memory, by role, read now and then."""

import threading
import time
from collections import defaultdict
from types import TracebackType
from typing import Self

import psutil  # type: ignore[import-untyped]

from tests.support.night import Night, verb_of

PERIOD_SECONDS = 0.25
LOOK_SECONDS = 1.0  # how often new processes are looked for: reading the whole list costs the machine something


class Meter:
    """Watches every process of a night from a thread; `cpu_seconds` and `peak_mb` are by role, summed and largest.

    `others` are processes that do not belong to the night, by role.
    """

    def __init__(self, night: Night, **others: int) -> None:
        self._night = night
        self._others = {role: psutil.Process(pid) for role, pid in others.items()}
        self._cpu: dict[str, dict[int, float]] = defaultdict(dict)
        self._cpu_before = {role: _cpu_seconds(process) for role, process in self._others.items()}
        self._peak_mb: dict[str, float] = defaultdict(float)
        self._readings: list[tuple[float, dict[str, float]]] = []
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="meter", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ending.set()
        self._thread.join()

    @property
    def cpu_seconds(self) -> dict[str, float]:
        return {role: sum(by_pid.values()) for role, by_pid in sorted(self._cpu.items())}

    @property
    def peak_mb(self) -> dict[str, float]:
        return dict(sorted(self._peak_mb.items()))

    def cores(self, begin: float, end: float) -> dict[str, float]:
        """CPU seconds per second, by role, between two moments (seconds since the Unix epoch)."""
        within = [reading for reading in self._readings if begin <= reading[0] <= end]
        (first_at, first), (last_at, last) = within[0], within[-1]
        return {role: (seconds - first.get(role, 0.0)) / (last_at - first_at) for role, seconds in last.items()}

    def _watch(self) -> None:
        look_again_at = 0.0
        roles: dict[psutil.Process, str] = {}
        while not self._ending.wait(PERIOD_SECONDS):
            if time.monotonic() >= look_again_at:
                look_again_at = time.monotonic() + LOOK_SECONDS
                roles = {process: verb_of(process) for process in self._night.processes()}
                roles |= {process: role for role, process in self._others.items()}
            for process, role in roles.items():
                try:
                    seconds, memory = _cpu_seconds(process), process.memory_info()
                except psutil.NoSuchProcess:
                    continue
                self._cpu[role][process.pid] = seconds - self._cpu_before.get(role, 0.0)
                self._peak_mb[role] = max(self._peak_mb[role], memory.rss / 1e6)
            self._readings.append((time.time(), self.cpu_seconds))


def _cpu_seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)
