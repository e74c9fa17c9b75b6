"""Whether anybody but the measurement is on a pool: by its engines' metrics, and by its ledger."""

import asyncio
import time
from collections.abc import Awaitable, Callable

from scheduler.ledger import Ledger, LedgerUnavailable
from scheduler.pools import capacity_of
from scheduler.signals.engine import EngineMetrics
from scheduler.signals.fetch import SignalUnavailable
from scheduler.signals.poll import STALE_SECONDS
from tickets_batch.settings import EngineSignal, LedgerSignal, Pool
from workers.gate import ABORT_SECONDS, ABORT_SECONDS_ELSEWHERE
from workers.measure.ours import Ours

LOOK_SECONDS = 0.05
ENGINE_SECONDS = 0.25
LEDGER_SECONDS = 0.1
IN_A_ROW = 2  # a request of ours that has just ended may still be on one page


class ChatWatch:
    """Looks all the time. `is_needed` is False on a pool of batch's own, where no chat goes.

    The engines' metrics are read at their usual place where the settings name none. Of what runs and waits there, our
    own does not count, nor what we have withdrawn for as long as the engine may go on with it. The ledger tells of chat
    only where a gateway or a guard beats, and always of a batch at work. Raises SettingsError when a key is missing.
    """

    def __init__(
        self, pool: Pool, ledger: Ledger | None, ours: Ours, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self.is_needed = not capacity_of(pool).is_dedicated
        signals = [signal for signal in pool.signal if isinstance(signal, EngineSignal)]
        self._engines = [EngineMetrics(pool, signal) for signal in signals or [EngineSignal(type="engine")]]
        self._has_ledger_signal = any(isinstance(signal, LedgerSignal) for signal in pool.signal)
        self._ledger = ledger
        self._ours = ours
        self._monotonic = monotonic
        self._abort_seconds = ABORT_SECONDS.get(pool.engine, ABORT_SECONDS_ELSEWHERE)
        self._in_a_row = 0
        self._found: dict[str, str] = {}
        self._seen_at: dict[str, float] = {}
        self.why_not = ""
        self._tasks: list[asyncio.Task[None]] = []

    async def open(self) -> None:
        """Begin to look; the first look of each source is done when this returns."""
        await asyncio.gather(self._look_at_engines(), self._look_at_ledger())
        self._tasks = [
            asyncio.create_task(self._again(ENGINE_SECONDS, self._look_at_engines), name="watch engines"),
            asyncio.create_task(self._again(LEDGER_SECONDS, self._look_at_ledger), name="watch ledger"),
        ]

    async def aclose(self) -> None:
        """Stop looking and close the connections."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for engine in self._engines:
            await engine.aclose()
        if self._ledger is not None:
            await self._ledger.aclose()

    @property
    def is_blind(self) -> bool:
        """Whether nothing tells of the chat where there may be some."""
        now = self._monotonic()
        return self.is_needed and not any(now - at < STALE_SECONDS for at in self._seen_at.values())

    @property
    def busy(self) -> str:
        """Who else is there, in words; empty when nobody is."""
        return "; ".join(self._found.values())

    async def until_busy(self) -> str:
        """Returns when somebody else is there, or when nothing tells any more: then who."""
        while True:
            if self.busy:
                return self.busy
            if self.is_blind:
                return f"nothing tells of the chat: {self.why_not}"
            await asyncio.sleep(LOOK_SECONDS)

    async def is_quiet(self, for_seconds: float, patience_seconds: float) -> bool:
        """Waits until nobody was there for so long; False when that does not come within the patience.

        What may still be ours in the engine hides as many of others: the time counts from when none of it is left.
        """
        gives_up_at = self._monotonic() + patience_seconds
        since = self._monotonic()
        while (now := self._monotonic()) - since < for_seconds:
            is_hidden = self._ours.most_since(now - self._abort_seconds - IN_A_ROW * ENGINE_SECONDS) > 0
            if self.busy or self.is_blind or is_hidden:
                since = now
            if now >= gives_up_at:
                return False
            await asyncio.sleep(LOOK_SECONDS)
        return True

    async def _again(self, every_seconds: float, look: Callable[[], Awaitable[None]]) -> None:
        while True:
            await asyncio.sleep(every_seconds)
            await look()

    async def _look_at_engines(self) -> None:
        asked = self._monotonic()
        try:
            readings = await asyncio.gather(*(engine.read() for engine in self._engines))
        except SignalUnavailable as error:
            self.why_not = str(error)
            return
        shown = sum(reading.running + reading.waiting for reading in readings)
        others = shown - self._ours.most_since(asked - self._abort_seconds)
        self._in_a_row = self._in_a_row + 1 if others > 0 else 0
        self._note("engine", f"{others} of the requests at the engine are not ours", self._in_a_row >= IN_A_ROW)
        self._seen_at["engine"] = self._monotonic()

    async def _look_at_ledger(self) -> None:
        if self._ledger is None:
            return
        try:
            snapshot = await self._ledger.snapshot()
        except LedgerUnavailable as error:
            self.why_not = self.why_not or str(error)
            return
        chat, batch = snapshot.interactive.slots, snapshot.batch.slots
        self._note("chat", f"chat has {chat} in flight", chat > 0)
        self._note("batch", f"a batch has {batch} in flight here: pause it first", batch > 0)
        beat = snapshot.beat_age_seconds
        if self._has_ledger_signal and beat is not None and beat < STALE_SECONDS:
            self._seen_at["ledger"] = self._monotonic()

    def _note(self, source: str, words: str, is_there: bool) -> None:
        if is_there:
            self._found[source] = words
        else:
            self._found.pop(source, None)
