"""What the processes of a night cost while they live: CPU and memory, by role, read now and then."""

import threading
from collections import defaultdict
from types import TracebackType
from typing import Self

import psutil  # type: ignore[import-untyped]

from tests.support.night import Night, verb_of

PERIOD_SECONDS = 0.25


class Meter:
    """Watches every process of a night from a thread; `cpu_seconds` and `peak_mb` are by role, summed and largest."""

    def __init__(self, night: Night) -> None:
        self._night = night
        self._cpu: dict[str, dict[int, float]] = defaultdict(dict)
        self._peak_mb: dict[str, float] = defaultdict(float)
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

    def _watch(self) -> None:
        while not self._ending.wait(PERIOD_SECONDS):
            for process in self._night.processes():
                try:
                    times, memory = process.cpu_times(), process.memory_info()
                except psutil.NoSuchProcess:
                    continue
                role = verb_of(process)
                self._cpu[role][process.pid] = times.user + times.system
                self._peak_mb[role] = max(self._peak_mb[role], memory.rss / 1e6)
