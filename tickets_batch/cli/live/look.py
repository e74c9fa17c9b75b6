"""Everything that the live view shows of a batch, as it was at one moment."""

from dataclasses import dataclass
from datetime import datetime

from jobs.states import BatchState
from jobs.store.batches import Batch
from jobs.store.events import Event
from jobs.store.forecasts import StoredForecast
from jobs.store.services import Service
from scheduler.pool_reading import PoolReading
from tickets_batch.cli.live.first_tokens import Heard
from tickets_batch.cli.prospect import FRESH_SECONDS


@dataclass(frozen=True, slots=True)
class PoolLook:
    """A pool of the batch; `reading` is None where its ledger cannot be read, or it is no longer in the settings.

    `target_seconds` is the chat's, for its first token.
    """

    name: str
    reading: PoolReading | None
    target_seconds: float | None
    heard: Heard


@dataclass(frozen=True, slots=True)
class Look:
    """A batch and what is around it, read at `at` (the database's time), `age_seconds` ago.

    `rate_per_second` is that of the last half minute, `forecast` the newest, however old it is. `why_away` says why
    the ledgers cannot be read, `notes` what is amiss, a line each. `events` are the last ones, newest first.
    """

    batch: Batch
    at: datetime
    rate_per_second: float | None = None
    forecast: StoredForecast | None = None
    waits_for: tuple[str, ...] = ()
    pools: tuple[PoolLook, ...] = ()
    why_away: str | None = None
    events: tuple[Event, ...] = ()
    at_work: tuple[Service, ...] = ()
    notes: tuple[str, ...] = ()
    age_seconds: float = 0.0

    @property
    def is_going_on(self) -> bool:
        """Whether the batch is to be worked on: of any other, nothing is foreseen."""
        return self.batch.state is BatchState.RUNNING and not self.batch.blocked

    @property
    def forecast_age_seconds(self) -> float | None:
        """None where there is no forecast."""
        return None if self.forecast is None else (self.at - self.forecast.at).total_seconds()

    @property
    def good_forecast(self) -> StoredForecast | None:
        """The newest forecast, while it can be believed."""
        age = self.forecast_age_seconds
        return self.forecast if age is not None and age <= FRESH_SECONDS and self.is_going_on else None
