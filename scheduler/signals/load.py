"""What is known of interactive traffic now, from all sources together."""

from dataclasses import dataclass

from scheduler.capacity import NOTHING, Amount


@dataclass(frozen=True, slots=True)
class SourceAge:
    """How old the last sign of life of a source is; None: there was none. Not fresh: it says nothing now."""

    name: str
    age_seconds: float | None
    is_fresh: bool


@dataclass(frozen=True, slots=True)
class Load:
    """One reading of the chat. `arrivals` and `ttfts_seconds` are what came since the reading before.

    `is_congested`: requests queue at the engine beyond our own. `is_blind`: no source is fresh. `prefill_rate` is what
    an engine was seen to prefill of one request, in tokens/s, None while unknown; `prefilled_per_second` what all
    engines of the pool together did lately. `batch_expected_seconds` is how long the requests that batch has in flight
    are expected to take, on average.
    """

    in_flight: Amount = NOTHING
    waiting: int = 0
    oldest_waiting_seconds: float = 0.0
    arrivals: int = 0
    ttfts_seconds: tuple[float, ...] = ()
    batch_in_flight: Amount = NOTHING
    batch_expected_seconds: float = 0.0
    is_congested: bool = False
    is_blind: bool = False
    prefill_rate: float | None = None
    prefilled_per_second: float = 0.0
    sources: tuple[SourceAge, ...] = ()
