"""Prometheus as a source: the operator's own queries, for fleets and for routers that know the classes apart."""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from scheduler.signals.combine import Report
from scheduler.signals.exposition import MOST
from scheduler.signals.fetch import Fetcher, SignalUnavailable
from scheduler.signals.poll import Poll
from scheduler.signals.tokens import TokensPerRequest
from tickets_batch.settings import Pool, PrometheusSignal

PERIOD_SECONDS = 1.0
_BODY_CHARS = 200


@dataclass(frozen=True, slots=True)
class Answers:
    """What the queries said of the chat; None: not asked, or of a time to first token: nobody came."""

    in_flight: int | None = None
    waiting: int | None = None
    ttft_seconds: float | None = None


class Prometheus:
    """Asks one server. Every query given must have a result, or there is no answer: an empty one is not zero.

    Several series of requests add up; of several times to first token the longest counts. Raises SettingsError when
    the authorization is missing.
    """

    def __init__(self, signal: PrometheusSignal) -> None:
        self._queries = signal.queries
        url = f"{(signal.url or '').rstrip('/')}/api/v1/query"
        self._fetcher = Fetcher(url, {"Authorization": signal.authorization.reveal()} if signal.authorization else None)

    @property
    def url(self) -> str:
        """Where the queries go."""
        return self._fetcher.url

    async def ask(self) -> Answers:
        """All queries, one after the other. Raises SignalUnavailable, which names the one without a result."""
        if not self._queries:
            raise SignalUnavailable("prometheus has nothing to ask: set url and one of in_flight, waiting and ttft")
        found = {name: await self._values(name, query) for name, query in self._queries.items()}
        ttfts = [value for value in found.get("ttft", ()) if math.isfinite(value)]
        return Answers(_requests("in_flight", found), _requests("waiting", found), max(ttfts, default=None))

    async def aclose(self) -> None:
        """Close what is open."""
        await self._fetcher.aclose()

    async def _values(self, name: str, query: str) -> list[float]:
        status, body = await self._fetcher.get({"query": query})
        try:
            answer = json.loads(body)
            values = _values_of(answer["data"]) if answer["status"] == "success" else []
            error = str(answer.get("error", ""))
        except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError, OverflowError) as reason:
            raise SignalUnavailable(f"{self._fetcher.url} answers {status}, and not as Prometheus does") from reason
        if error:
            raise SignalUnavailable(f"{name}: Prometheus answers {error[:_BODY_CHARS]!r}")
        if not values:
            raise SignalUnavailable(f"{name}: the query has no result: {query}")
        return values


class PrometheusSource:
    """One server and what it was last heard to say."""

    def __init__(self, name: str, signal: PrometheusSignal, pool: Pool, monotonic: Callable[[], float]) -> None:
        self._prometheus = Prometheus(signal)
        self.poll: Poll[Answers] = Poll(
            name, pool.name, self._prometheus.ask, period_seconds=PERIOD_SECONDS, monotonic=monotonic
        )
        self._told: object = None

    async def aclose(self) -> None:
        await self._prometheus.aclose()

    def report(self, tokens: TokensPerRequest) -> Report:
        """What it says while it is fresh; each time to first token once."""
        answer = self.poll.fresh
        if answer is None:
            return Report((self.poll.age,))
        is_new, self._told = answer is not self._told, answer
        ttft_seconds = answer.value.ttft_seconds
        return Report(
            (self.poll.age,),
            in_flight=tokens.amount(answer.value.in_flight or 0),
            waiting=answer.value.waiting or 0,
            ttfts_seconds=(ttft_seconds,) if ttft_seconds is not None and is_new else (),
            is_estimate=True,
        )


def _values_of(data: dict[str, Any]) -> list[float]:
    if data["resultType"] == "scalar":
        return [float(data["result"][1])]
    if data["resultType"] == "vector":
        return [float(series["value"][1]) for series in data["result"]]
    raise ValueError(data["resultType"])


def _requests(name: str, found: dict[str, list[float]]) -> int | None:
    if name not in found:
        return None
    total = sum(found[name])
    if not 0 <= total <= MOST:  # nor what is no number
        raise SignalUnavailable(f"{name}: the query answers {total}, which is no number of requests")
    return round(total)
