"""A source that is asked again and again beside everything else, and its newest answer."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from scheduler.signals.fetch import SignalUnavailable
from scheduler.signals.load import SourceAge

log = logging.getLogger(__name__)

PERIOD_SECONDS = 0.5
STALE_SECONDS = 3.0

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Answer(Generic[T]):
    """What a source said, and between which two moments it was asked (monotonic seconds)."""

    value: T
    asked: float
    came: float


class Poll(Generic[T]):
    """Asks at every period, one question at a time; one that fails leaves the last answer to grow old.

    An answer is fresh for `stale_seconds` after it came. `why_not` says what stood in the way of the last one.
    """

    def __init__(
        self,
        name: str,
        pool: str,
        ask: Callable[[], Awaitable[T]],
        *,
        period_seconds: float = PERIOD_SECONDS,
        stale_seconds: float = STALE_SECONDS,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self._about = f"pool {pool}, signal {name}"
        self.newest: Answer[T] | None = None
        self.why_not = ""
        self._ask = ask
        self._period_seconds = period_seconds
        self._stale_seconds = stale_seconds
        self._monotonic = monotonic

    async def run(self) -> None:
        """Ask until cancelled."""
        while True:
            started = self._monotonic()
            await self.once()
            await asyncio.sleep(max(0.0, self._period_seconds - (self._monotonic() - started)))

    async def once(self) -> None:
        """Ask once; a failure is told when it is another one than the last time."""
        asked = self._monotonic()
        try:
            self.newest = Answer(await self._ask(), asked, self._monotonic())
        except SignalUnavailable as error:
            self._fails(str(error))
        except Exception as error:
            log.exception("%s failed", self._about)
            self._fails(f"{type(error).__name__}: {error}")
        else:
            if self.why_not:
                log.info("%s is back", self._about)
            self.why_not = ""

    @property
    def age(self) -> SourceAge:
        """How old the newest answer is."""
        if self.newest is None:
            return SourceAge(self.name, None, False)
        age_seconds = max(0.0, self._monotonic() - self.newest.came)
        return SourceAge(self.name, age_seconds, age_seconds < self._stale_seconds)

    @property
    def fresh(self) -> Answer[T] | None:
        """The newest answer while it is fresh."""
        return self.newest if self.age.is_fresh else None

    def _fails(self, why: str) -> None:
        if why != self.why_not:
            log.warning("%s: %s", self._about, why)
        self.why_not = why
