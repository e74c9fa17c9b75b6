"""The record of each pool while a batch is at work, for those who ask later: its load, and changes of its limit.

It is written from what the ledger says, beside the control loop, and may stall without stopping it.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from jobs.store import batches, events, samples
from jobs.store.database import Database
from jobs.store.events import EventKind
from jobs.store.samples import LoadSample
from scheduler.permit import Kind
from scheduler.pool_reading import Condition, PoolReading, quantile
from scheduler.snapshot import Snapshot

SAMPLE_SECONDS = 10.0
CHANGE_SECONDS = 5.0  # at most one event a pool within this: what flaps meanwhile is counted, not told
KEEP_SECONDS = 30 * 24 * 3600.0
FORGET_SECONDS = 3600.0


@dataclass(slots=True)
class _Known:
    """What was last seen and written of a pool; times are monotonic seconds."""

    sampled: Snapshot
    sampled_at: float
    seen: Condition
    told: Condition | None = None
    told_at: float | None = None
    revoked: int = 0
    changes: int = 0


class Journal:
    """Writes a sample of every pool each ten seconds, and an event for each change of what batch has of it."""

    def __init__(self, db: Database, clock: Callable[[], float] = time.monotonic) -> None:
        self._db = db
        self._clock = clock
        self._known: dict[str, _Known] = {}
        self._forgot_at: float | None = None

    def note(self, pools: Sequence[PoolReading]) -> None:
        """Take note of a look at all pools; while no batch is at work nothing is written. Raises StoreUnavailable."""
        now = self._clock()
        self._forget(now)
        if not batches.unfinished(self._db):
            self._known.clear()
            return
        due = []
        for pool in pools:
            known = self._known.setdefault(pool.name, _first_look(pool, now))
            if pool.condition is not known.seen:
                known.seen = pool.condition
                known.changes += 1
            may_tell = known.told_at is None or now - known.told_at >= CHANGE_SECONDS
            if known.seen is not known.told and may_tell:
                self._tell(known, pool, now)
            if now - known.sampled_at >= SAMPLE_SECONDS:
                due.append(pool)
        if due:
            samples.record(self._db, [_sample(pool, self._known[pool.name].sampled) for pool in due])
            for pool in due:
                self._known[pool.name].sampled, self._known[pool.name].sampled_at = pool.snapshot, now

    def _tell(self, known: _Known, pool: PoolReading, now: float) -> None:
        snapshot, limit = pool.snapshot, pool.limit
        detail: dict[str, Any] = {
            "from": known.told.value if known.told else None,
            "to": known.seen.value,
            "rule": pool.rule,
            "reason": pool.reason,
            "limit": {"slots": limit.slots, "tokens": limit.tokens},
            "chat": {"slots": pool.chat.slots, "tokens": pool.chat.tokens},
            "waiting": snapshot.interactive_waiting,
            "oldest_waiting_seconds": snapshot.oldest_waiting_seconds,
            "ttft_p95_seconds": quantile(pool.ttfts_seconds, 0.95),
            "reading_age_seconds": _reading_age(pool),
            "revoked": _grown(snapshot.revoked, known.revoked),
            "changes": known.changes,
        }
        events.record(self._db, EventKind.LIMIT, pool=pool.name, **detail)
        known.told, known.told_at, known.revoked, known.changes = known.seen, now, snapshot.revoked, 0

    def _forget(self, now: float) -> None:
        if self._forgot_at is None or now - self._forgot_at >= FORGET_SECONDS:
            samples.forget(self._db, KEEP_SECONDS)
            events.forget_pools(self._db, KEEP_SECONDS)
            self._forgot_at = now


def _first_look(pool: PoolReading, now: float) -> _Known:
    return _Known(pool.snapshot, now, pool.condition, revoked=pool.snapshot.revoked)


def _sample(pool: PoolReading, before: Snapshot) -> LoadSample:
    snapshot, limit, chat = pool.snapshot, pool.limit, pool.chat
    newest = snapshot.recent[: _grown(snapshot.first_tokens, before.first_tokens)]
    return LoadSample(
        pool=pool.name,
        at=pool.at,
        limit_slots=limit.slots,
        limit_tokens=limit.tokens,
        batch_slots=snapshot.batch.slots,
        batch_tokens=snapshot.batch.tokens,
        interactive_slots=chat.slots,
        interactive_tokens=chat.tokens,
        interactive_waiting=snapshot.interactive_waiting,
        interactive_arrivals=_grown(snapshot.arrivals, before.arrivals),
        interactive_refused=_grown(snapshot.refused, before.refused),
        revoked=_grown(snapshot.revoked, before.revoked),
        ttft_seconds=quantile((first.seconds for first in newest if first.kind is Kind.INTERACTIVE), 0.95),
        reading_age_seconds=_reading_age(pool),
        reason=pool.rule,
    )


def _grown(now: int, before: int) -> int:
    """How much a counter of the ledger has grown; one that began anew has grown by all that it shows."""
    return now - before if now >= before else now


def _reading_age(pool: PoolReading) -> float | None:
    return min((one.age_seconds for one in pool.sources if one.age_seconds is not None), default=None)
