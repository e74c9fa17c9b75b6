"""What happened to a batch's pools in its night: when what batch had of them changed, and why."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Self

from jobs.store import events
from jobs.store.database import Database
from jobs.store.events import Event

SHOWN_CHANGES = 40  # of a pool: a page is to be read
FIRST_LOOK = 1_000  # events, the newest first; the next look is at four times as many


@dataclass(frozen=True, slots=True)
class PoolChanges:
    """The changes of one pool, in order: all of them, or those `shown` of `count` whose state lasted longest."""

    pool: str
    count: int
    shown: tuple[Event, ...]

    @classmethod
    def of(cls, db: Database, pool: str, began_at: datetime, ended_at: datetime) -> Self:
        """Those from `began_at` to `ended_at`. Raises StoreUnavailable."""
        found = _between(db, pool, began_at, ended_at)
        ends = [*(event.at for event in found), ended_at]
        lasted = [until - since for since, until in pairwise(ends)]
        longest = sorted(range(len(found)), key=lambda place: lasted[place], reverse=True)[:SHOWN_CHANGES]
        return cls(pool, len(found), tuple(found[place] for place in sorted(longest)))


def _between(db: Database, pool: str, began_at: datetime, ended_at: datetime) -> Sequence[Event]:
    looked_at = FIRST_LOOK
    while True:
        newest = events.of_pool(db, pool, looked_at)
        if len(newest) < looked_at or newest[-1].at < began_at:
            return [event for event in reversed(newest) if began_at <= event.at <= ended_at]
        looked_at *= 4
