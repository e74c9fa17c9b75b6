"""Telling that a batch has ended, whoever ended it: its last ticket, the deadline, or a person."""

import logging
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any

from jobs.store import batches
from jobs.store.batches import Batch
from jobs.store.database import Database

log = logging.getLogger(__name__)

ENDED = "ended"
OVERLAP_SECONDS = 30.0  # what another leader may have left untold, and how late an end may become visible


class Endings:
    """Tells each end of a batch once, and again what the leader before may have told within its last half minute.

    A receiver knows an end by `batch_id` and `finished_at`: a batch that is opened again ends again.
    """

    def __init__(self, db: Database, tell: Callable[[Mapping[str, Any]], None]) -> None:
        self._db = db
        self._tell = tell
        self._looked_at: datetime | None = None
        self._told: dict[tuple[str, datetime], None] = {}

    def look(self) -> None:
        """Tell what has ended since the last look. Raises StoreUnavailable."""
        now = self._db.now()
        since = (self._looked_at or now) - timedelta(seconds=OVERLAP_SECONDS)
        ended = {(batch.id, at): batch for batch in batches.ended_since(self._db, since) if (at := batch.finished_at)}
        for end, batch in ended.items():
            if end not in self._told:
                log.info("%s has ended: %s", batch.id, batch.state)
                self._tell(_said(batch))
        self._looked_at, self._told = now, dict.fromkeys(ended)


def _said(batch: Batch) -> Mapping[str, Any]:
    states = ("total", "succeeded", "failed", "expired", "cancelled", "reused", "rejected")
    return {
        "event": ENDED,
        "batch_id": batch.id,
        "at": _iso(batch.finished_at),
        "date": batch.date.isoformat() if batch.date else None,
        "state": batch.state.value,
        "created_at": _iso(batch.created_at),
        "deadline_at": _iso(batch.deadline_at),
        "finished_at": _iso(batch.finished_at),
        "request_counts": {name: getattr(batch, name) for name in states},
        "tokens": {
            "prompt": batch.prompt_tokens,
            "completion": batch.completion_tokens,
            "wasted": batch.wasted_tokens,
        },
    }


def _iso(instant: datetime | None) -> str | None:
    return None if instant is None else instant.isoformat(timespec="seconds")
