"""What lies ahead of a batch, as `status` tells it: when it will be done, how sure that is, and whom it waits for."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self
from zoneinfo import ZoneInfo

from jobs.store import batches, forecasts
from jobs.store.batches import Batch
from jobs.store.database import Database
from jobs.store.forecasts import StoredForecast
from scheduler.hindsight import Foreseen, Judged, judge
from tickets_batch.cli.times import iso, shown_instant

FRESH_SECONDS = 60.0  # an older forecast is that of a scheduler that has gone
WORDS = {
    "guaranteed": "guaranteed: the floor alone suffices",
    "on_track": "on track",
    "at_risk": "at risk: in more than one case of ten it is not done by the deadline",
    "will_miss": "will miss its deadline: even the whole limit from now on would not do, or nothing is answered",
}


@dataclass(frozen=True, slots=True)
class Prospect:
    """The newest forecast of a batch if it is still good, the batches served before it, what came of its forecasts."""

    forecast: StoredForecast | None = None
    waits_for: tuple[str, ...] = ()
    judged: tuple[Judged, ...] = ()

    @classmethod
    def of(cls, db: Database, batch: Batch) -> Self:
        """What the database knows. Raises StoreUnavailable."""
        if batch.state.is_final:
            return cls(judged=_judged(forecasts.of_batch(db, batch.id), batch.finished_at))
        now = db.now()
        newest = forecasts.latest(db, batch.id)
        is_fresh = newest is not None and (now - newest.at).total_seconds() <= FRESH_SECONDS
        waits_for = tuple(work.id for work in batches.ahead_of(db, batch.id))
        return cls(newest if is_fresh else None, waits_for)

    def as_json(self) -> dict[str, Any] | None:
        """The forecast behind `eta` and `pace`; null where there is none."""
        found = self.forecast
        if found is None:
            return None
        return {
            "at": iso(found.at),
            "tokens_left": found.tokens_left,
            "achieved_tokens_per_second": found.achieved_rate,
            "needed_tokens_per_second": found.needed_rate,
            "floor_tokens_per_second": found.floor_rate,
            "full_tokens_per_second": found.full_rate,
            "chat_slots": found.chat_slots,
            "floor_at": iso(found.floor_at),
        }

    def in_words(self, batch: Batch, zone: ZoneInfo) -> Iterator[tuple[str, str]]:
        """Lines for a person, each with its name."""
        if self.waits_for:
            yield "waits for", f"{', '.join(self.waits_for)}: the nearest deadline is served first"
        if self.forecast is not None:
            yield from _ahead(self.forecast, batch, zone)
        if self.judged:
            yield "forecasts", "; ".join(_came_out(one) for one in self.judged)


def _ahead(forecast: StoredForecast, batch: Batch, zone: ZoneInfo) -> Iterator[tuple[str, str]]:
    if forecast.p50_at and forecast.p90_at:
        half, most = shown_instant(forecast.p50_at, zone), f"{forecast.p90_at.astimezone(zone):%H:%M}"
        yield "done at", f"{half} as likely as not, by {most} in nine cases of ten"
    if forecast.floor_at and (batch.deadline_at is None or forecast.floor_at <= batch.deadline_at):
        yield "", f"by {forecast.floor_at.astimezone(zone):%H:%M} even if the chat never rests"
    if forecast.pace and batch.deadline_at:
        needed = ""
        if forecast.needed_rate and forecast.achieved_rate:
            needed = f"; {forecast.needed_rate:,.0f} tokens/s needed, {forecast.achieved_rate:,.0f} achieved"
        yield "pace", WORDS[forecast.pace] + needed


def _judged(made: Sequence[StoredForecast], finished_at: datetime | None) -> tuple[Judged, ...]:
    foreseen = [
        Foreseen(one.at, one.tokens_left, one.p50_at, one.p90_at)
        for one in made
        if one.p50_at is not None and one.p90_at is not None
    ]
    return () if finished_at is None else judge(foreseen, finished_at)


def _came_out(judged: Judged) -> str:
    way = "too late" if judged.error_share > 0 else "too early"
    return f"at {judged.done_share:.0%} of the work {abs(judged.error_share):.0%} of the time left {way}"
