"""The plain display, for logs and mails: a line now and then, and one for everything that happens."""

import threading
import time
from collections.abc import Callable
from datetime import datetime
from types import TracebackType
from typing import Self, TextIO
from zoneinfo import ZoneInfo

from jobs.states import BatchState
from jobs.store.events import EventKind
from scheduler.capacity import total
from scheduler.pool_reading import Condition
from tickets_batch.cli.live.event_text import event_in_words
from tickets_batch.cli.live.look import Look, PoolLook
from tickets_batch.cli.live.rows import clock
from tickets_batch.cli.text import state_in_words
from tickets_batch.cli.view import done_in_words
from tickets_batch.progress import duration
from tickets_batch.words import counted, printable

FIRST_SECONDS = 60.0  # in which a line comes often: a person may still be looking
OFTEN_SECONDS = 5.0
SELDOM_SECONDS = 60.0


class Lines:
    """A line every five seconds in the first minute, then one a minute, unless nothing has changed.

    What is amiss is told when it begins, and what happened to the batch when it happened; what comes and goes in its
    pools is in the lines only.
    """

    def __init__(self, out: TextIO, zone: ZoneInfo, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._out = out
        self._zone = zone
        self._monotonic = monotonic
        self._began_at = monotonic()
        self._written_at: float | None = None
        self._pending: Look | None = None
        self._last = ""
        self._notes: tuple[str, ...] = ()
        self._told_until: datetime | None = None
        self._lock = threading.Lock()

    def show(self, look: Look) -> None:
        """Show how the batch stands, if it is time for a line."""
        for note in look.notes:
            if note not in self._notes:
                self.say(note)
        self._notes = look.notes
        self._tell_events(look)
        self._pending = look
        now = self._monotonic()
        every_seconds = OFTEN_SECONDS if now - self._began_at < FIRST_SECONDS else SELDOM_SECONDS
        if self._written_at is None or now - self._written_at >= every_seconds:
            self._written_at = now
            self._write_pending()

    def say(self, line: str) -> None:
        """Tell one thing that happened."""
        with self._lock:
            print(printable(line), file=self._out, flush=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._write_pending()

    def _tell_events(self, look: Look) -> None:
        """What has happened to the batch since the first look."""
        if self._told_until is None:
            self._told_until = look.at
        new = [event for event in reversed(look.events) if event.pool is None and event.at > self._told_until]
        for event in new:
            if event.kind == EventKind.BLOCKED and event.detail.get("why") == look.batch.blocked and look.notes:
                continue  # a note has just told it
            self.say(f"{event.at.astimezone(self._zone):%H:%M:%S} {event_in_words(event)}")
        self._told_until = max([self._told_until, *(event.at for event in new)])

    def _write_pending(self) -> None:
        if self._pending is None:
            return
        words = in_words(self._pending, self._zone)
        if words != self._last:
            self._last = words
            self.say(f"{self._pending.at.astimezone(self._zone):%H:%M:%S} {words}")


def in_words(look: Look, zone: ZoneInfo) -> str:
    """One line: how far, how fast, until when, what batch holds and by which rule, and what the chat feels."""
    batch = look.batch
    parts = [f"{done_in_words(batch)} done", f"{batch.failed:,} failed"]
    if batch.expired:
        parts.append(f"{batch.expired:,} expired")
    if look.rate_per_second is not None:
        parts.append(f"{look.rate_per_second:,.1f}/s")
    if not batch.state.is_final:
        parts += [*_ahead(look, zone), *_pools(look)]
    state = "blocked" if batch.blocked else state_in_words(batch, zone, look.at)
    if state != BatchState.RUNNING:
        parts.append(state)
    return ", ".join(parts)


def _ahead(look: Look, zone: ZoneInfo) -> list[str]:
    batch, forecast, said = look.batch, look.good_forecast, []
    if forecast and forecast.p50_at and forecast.p90_at:
        pace = f" ({forecast.pace.replace('_', ' ')})" if forecast.pace else ""
        said.append(f"ends {clock(forecast.p50_at, look.at, zone)} to {clock(forecast.p90_at, look.at, zone)}{pace}")
    elif look.rate_per_second and look.is_going_on:
        said.append(f"{duration((batch.pending + batch.running) / look.rate_per_second)} left")
    if batch.deadline_at:
        said.append(f"deadline {clock(batch.deadline_at, look.at, zone)}")
    return said


def _pools(look: Look) -> list[str]:
    readings = [pool.reading for pool in look.pools if pool.reading]
    if not readings:
        return []
    held = total(reading.snapshot.batch for reading in readings).slots
    limit = total(reading.limit for reading in readings).slots
    rules = ", ".join(dict.fromkeys(reading.rule_in_words for reading in readings))
    said = [f"batch {held} of {counted(limit, 'slot')} ({rules})"]
    shared = [pool for pool in look.pools if pool.reading and pool.reading.condition is not Condition.DEDICATED]
    if shared:
        said.append(f"chat {total(reading.chat for reading in readings).slots}")
        said += filter(None, [_felt(max(shared, key=_strain))])
    return said


def _strain(pool: PoolLook) -> float:
    """The chat's time to first token as a share of its target; 0 where nothing was heard of late."""
    heard = pool.heard
    if not heard.is_of_late or heard.p95_seconds is None or pool.target_seconds is None:
        return 0.0
    return heard.p95_seconds / pool.target_seconds


def _felt(pool: PoolLook) -> str | None:
    if not _strain(pool):
        return None
    return f"first token {pool.heard.p95_seconds:.2f} s (p95; target {pool.target_seconds:.2f} s)"
