"""What a batch's night came to: one object, for the page as for `--json`."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from itertools import accumulate
from typing import Any, Self

from jobs.states import JobState
from jobs.store import batches, events, forecasts, results, samples
from jobs.store.batches import Batch
from jobs.store.database import Database
from jobs.store.events import Event
from jobs.store.forecasts import StoredForecast
from jobs.store.results import ResultRow
from scheduler.hindsight import Judged
from tickets_batch.cli.prospect import Prospect
from tickets_batch.cli.times import iso
from tickets_batch.cli.view import COUNTS
from tickets_batch.report.pool_changes import PoolChanges
from tickets_batch.report.pool_night import MOST_STEPS, PoolNight
from tickets_batch.settings import Settings

SHOWN_EVENTS = 200
FAILED_FOR = "failed"  # where nobody has said for what


@dataclass(frozen=True, slots=True)
class Progress:
    """How many tickets were done (answered, failed, expired or cancelled) at each instant, from the start on."""

    at: tuple[datetime, ...]
    done: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Foretold:
    """The forecasts, or an even choice of many: by when the batch was to end in one case of two, and in nine of ten."""

    at: tuple[datetime, ...]
    p50_at: tuple[datetime | None, ...]
    p90_at: tuple[datetime | None, ...]

    @classmethod
    def of(cls, made: Sequence[StoredForecast]) -> Self:
        """From all that were made, in order."""
        chosen = made[:: max(1, math.ceil(len(made) / MOST_STEPS))]
        return cls(
            tuple(one.at for one in chosen),
            tuple(one.p50_at for one in chosen),
            tuple(one.p90_at for one in chosen),
        )


@dataclass(frozen=True, slots=True)
class Cost:
    """What the pools that have a price took in the `hours` that were recorded of them, in whatever currency.

    `pools` is for all of those hours, `batch_share` for the share of their slots that batch held. None: no price.
    """

    hours: float
    pools: float | None
    batch_share: float | None


@dataclass(frozen=True, slots=True)
class Figures:
    """The night from `began_at` to `ended_at`, which is now where it is not yet over.

    `events` are the batch's last ones and those shown of its pools' changes, in order.
    """

    batch: Batch
    began_at: datetime
    ended_at: datetime
    pools: tuple[PoolNight, ...]
    progress: Progress
    labels: Mapping[str, int]
    failures: Mapping[str, int]
    forecasts: Foretold
    forecast_errors: tuple[Judged, ...]
    events: tuple[Event, ...]
    pool_changes: tuple[PoolChanges, ...]
    cost: Cost

    @classmethod
    def of(cls, db: Database, batch_id: str, settings: Settings) -> Self:
        """What the database knows. Raises UserError where there is no such batch; StoreUnavailable."""
        batch = batches.get(db, batch_id)
        began_at = batch.started_at or batch.created_at
        ended_at = max(batch.finished_at or db.now(), began_at)
        known = {pool.name: pool for pool in settings.pool}
        until = ended_at + timedelta(seconds=1)
        pools = tuple(
            PoolNight.of(name, samples.between(db, name, began_at, until), began_at, ended_at, known.get(name))
            for name in batch.pools
        )
        changes = tuple(PoolChanges.of(db, name, began_at, ended_at) for name in batch.pools)
        happened = [*events.recent(db, batch_id, SHOWN_EVENTS), *(event for pool in changes for event in pool.shown)]
        tally = _Tally(results.stream(db, batch_id))
        return cls(
            batch=batch,
            began_at=began_at,
            ended_at=ended_at,
            pools=pools,
            progress=tally.progress(began_at, ended_at),
            labels=_most_first(tally.labels),
            failures=_most_first(tally.failures),
            forecasts=Foretold.of(forecasts.of_batch(db, batch_id)),
            forecast_errors=Prospect.of(db, batch).judged,
            events=tuple(sorted(happened, key=lambda event: event.at)),
            pool_changes=changes,
            cost=_cost(pools),
        )

    def as_json(self) -> dict[str, Any]:
        """The keys are stable; instants are in UTC, what is not known is null."""
        batch = self.batch
        return {
            "batch_id": batch.id,
            "date": batch.date.isoformat() if batch.date else None,
            "zone": batch.zone,
            "model": batch.model,
            "state": batch.state.value,
            "created_at": iso(batch.created_at),
            "began_at": iso(self.began_at),
            "ended_at": iso(self.ended_at),
            "deadline_at": iso(batch.deadline_at),
            "finished_at": iso(batch.finished_at),
            "request_counts": {name: getattr(batch, name) for name in COUNTS},
            "yields": batch.yields,
            "withdrawn": batch.withdrawn,
            "tokens": {
                "prompt": batch.prompt_tokens,
                "completion": batch.completion_tokens,
                "wasted": batch.wasted_tokens,
            },
            "cost": asdict(self.cost),
            "labels": dict(self.labels),
            "failures": dict(self.failures),
            "pools": [
                {**pool.as_json(), "changes": changes.count}
                for pool, changes in zip(self.pools, self.pool_changes, strict=True)
            ],
            "progress": plain(asdict(self.progress)),
            "forecasts": plain(asdict(self.forecasts)),
            "forecast_errors": plain([asdict(judged) for judged in self.forecast_errors]),
            "events": plain(
                [
                    {"at": event.at, "kind": event.kind, "pool": event.pool, "detail": event.detail}
                    for event in self.events
                ]
            ),
        }


class _Tally:
    """Counts the rows of a batch, once through."""

    def __init__(self, rows: Iterable[ResultRow]) -> None:
        self.labels: Counter[str] = Counter()
        self.failures: Counter[str] = Counter()
        self._done: Counter[int] = Counter()  # by the minute, counted from 1970, in which they were done
        for row in rows:
            if row.state is JobState.SUCCEEDED and row.label is not None:
                self.labels[row.label] += 1
            elif row.state is JobState.FAILED:
                self.failures[(row.error or FAILED_FOR).partition(":")[0]] += 1
            if row.state.is_final and row.finished_at is not None:
                self._done[_minute_after(row.finished_at)] += 1

    def progress(self, began_at: datetime, ended_at: datetime) -> Progress:
        """The sums at the end of each minute in which something was done, and at both ends of the night."""
        minutes = sorted(self._done)
        done = list(accumulate(self._done[minute] for minute in minutes))
        at = [min(max(datetime.fromtimestamp(60 * minute, UTC), began_at), ended_at) for minute in minutes]
        return Progress((began_at, *at, ended_at), (0, *done, done[-1] if done else 0))


def _minute_after(at: datetime) -> int:
    return int(at.timestamp() // 60) + 1


def _most_first(counts: Counter[str]) -> dict[str, int]:
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def _cost(pools: Sequence[PoolNight]) -> Cost:
    priced = [(pool.seen_seconds / 3600, pool.cost_per_hour, pool) for pool in pools if pool.cost_per_hour is not None]
    hours = sum(hours for hours, _, _ in priced)
    if not hours:
        return Cost(0.0, None, None)
    shares = [hours * price * (pool.batch_share or 0.0) for hours, price, pool in priced]
    return Cost(hours, sum(hours * price for hours, price, _ in priced), sum(shares))


def plain(value: Any) -> Any:
    """The same in what JSON knows."""
    if isinstance(value, datetime):
        return iso(value)
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value
