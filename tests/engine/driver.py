"""The core driven by the wall clock on an asyncio loop."""

import asyncio
import math
from collections.abc import Callable

from scheduler.simulation.engine.core import EngineCore, EngineProfile, Request
from scheduler.simulation.engine.request import Event, Rejected
from tests.engine.clock import EngineClock


class RealTimeDriver:
    """Passes on what happens, calls `on_event` for each event when its time has come, then `after_events` once.

    A late loop loses no time: steps that ended meanwhile are caught up, with the times at which they ended.
    """

    def __init__(
        self, profile: EngineProfile, on_event: Callable[[Event], None], after_events: Callable[[], None]
    ) -> None:
        self.clock = EngineClock()
        self.core = EngineCore(profile, stream_tokens=True)
        self._on_event = on_event
        self._after_events = after_events
        self._due: float | None = None  # when the core has to be advanced next
        self._timer: asyncio.TimerHandle | None = None
        self._thaw_timer: asyncio.TimerHandle | None = None
        self._pump_soon = False

    def submit(self, request: Request) -> Rejected | None:
        rejected = self.core.submit(request, self._now())
        self._pump_next()
        return rejected

    def abort(self, request_id: str, *, hold_seconds: float = 0.0) -> None:
        self.core.abort(request_id, self._now(), hold_seconds=hold_seconds)
        self._pump_next()

    def set_profile(self, profile: EngineProfile) -> None:
        self.core.set_profile(profile, self._now())
        self._pump_next()

    def freeze(self, seconds: float | None = None) -> None:
        """Stop all work, for a while or until `thaw`; requests are still taken."""
        self._cancel_timers()
        self.clock.freeze()
        if seconds is not None:
            self._thaw_timer = asyncio.get_running_loop().call_later(seconds, self.thaw)

    def thaw(self) -> None:
        self._cancel_timers()
        self.clock.thaw()
        self._pump_next()

    def close(self) -> None:
        self._cancel_timers()

    def _now(self) -> float:
        return self.clock.now(self._due)

    def _pump_next(self) -> None:
        # Not at once: what else has arrived by now belongs to the same step.
        if not self._pump_soon:
            self._pump_soon = True
            asyncio.get_running_loop().call_soon(self._pump)

    def _pump(self) -> None:
        self._pump_soon = False
        if not self.clock.frozen:
            self._schedule(self._catch_up())
        self._after_events()

    def _catch_up(self) -> float:
        """Take what has happened until now from the core; returns when it is due next."""
        now = self._now()
        while True:
            for event in self.core.advance(now):
                self._on_event(event)
            due = self.core.next_event_time()
            if due > now:
                return due

    def _schedule(self, due: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._due = None if due == math.inf else due
        if self._due is not None:
            when = self.clock.monotonic(self._due)
            self._timer = asyncio.get_running_loop().call_at(when, self._pump)

    def _cancel_timers(self) -> None:
        for timer in (self._timer, self._thaw_timer):
            if timer is not None:
                timer.cancel()
        self._timer = self._thaw_timer = None
