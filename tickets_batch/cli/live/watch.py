"""Looks at a batch again and again: its row each time, what changes seldom every few seconds.

A look costs the same whatever the size of the batch: one row of `batches`, and a snapshot of each pool's ledger.
"""

import time
from dataclasses import replace
from operator import attrgetter

from jobs.store import batches, events, forecasts, services
from jobs.store.batches import Batch
from jobs.store.database import Database
from jobs.store.events import Event
from jobs.store.forecasts import StoredForecast
from jobs.store.services import Service
from tickets_batch.cli.ledgers import Ledgers
from tickets_batch.cli.live.first_tokens import FirstTokens, Heard
from tickets_batch.cli.live.look import Look, PoolLook
from tickets_batch.cli.view import done
from tickets_batch.progress import Rate
from tickets_batch.settings import Settings

SELDOM_SECONDS = 2.0
SHOWN_EVENTS = 5


class Watch:
    """Watches one batch."""

    def __init__(self, db: Database, batch_id: str, ledgers: Ledgers, settings: Settings) -> None:
        self._db = db
        self._batch_id = batch_id
        self._ledgers = ledgers
        self._targets = {pool.name: pool.ttft_target_seconds for pool in settings.pool}
        self._rate = Rate()
        self._first_tokens: dict[str, FirstTokens] = {}
        self._last: Look | None = None
        self._looked_at = 0.0
        self._read_at: float | None = None
        self._forecast: StoredForecast | None = None
        self._waits_for: tuple[str, ...] = ()
        self._events: tuple[Event, ...] = ()
        self._at_work: tuple[Service, ...] = ()

    def look(self) -> Look:
        """How it is now. Raises StoreUnavailable."""
        batch, at = batches.get(self._db, self._batch_id), time.monotonic()
        if self._read_at is None or at - self._read_at >= SELDOM_SECONDS or batch.state.is_final:
            self._read_the_rest(batch)
            self._read_at = at
        self._rate.add(at, done(batch))
        now = self._db.now()
        self._last = Look(
            batch=batch,
            at=now,
            rate_per_second=self._rate.per_second,
            forecast=self._forecast,
            waits_for=self._waits_for,
            pools=self._look_at_pools(batch, at),
            why_away=self._ledgers.why_away,
            events=self._events,
            at_work=self._at_work,
        )
        self._looked_at = at
        return self._last

    def last(self) -> Look | None:
        """The last look with its age now, None before the first."""
        return self._last and replace(self._last, age_seconds=time.monotonic() - self._looked_at)

    def _read_the_rest(self, batch: Batch) -> None:
        db, now = self._db, self._db.now()
        self._forecast = forecasts.latest(db, batch.id)
        self._waits_for = tuple(work.id for work in batches.ahead_of(db, batch.id) if work.is_at_work(now))
        self._at_work = tuple(services.alive(db))
        found = events.recent(db, batch.id, SHOWN_EVENTS)
        for name in batch.pools:
            found += (event for event in events.of_pool(db, name, SHOWN_EVENTS) if event.at >= batch.created_at)
        self._events = tuple(sorted(found, key=attrgetter("at"), reverse=True)[:SHOWN_EVENTS])

    def _look_at_pools(self, batch: Batch, at: float) -> tuple[PoolLook, ...]:
        readings = self._ledgers.readings(self._db.now())
        looks = []
        for name in batch.pools:
            reading, heard = readings.get(name), Heard()
            if reading is not None:
                first_tokens = self._first_tokens.setdefault(name, FirstTokens())
                first_tokens.add(at, reading.snapshot)
                heard = first_tokens.heard(at)
            looks.append(PoolLook(name, reading, self._targets.get(name), heard))
        return tuple(looks)
