"""The sources of one pool, and the reading that they make together."""

import asyncio
import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from scheduler.capacity import NOTHING, Amount
from scheduler.ledger import LEASE_SECONDS, Ledger
from scheduler.signals.combine import Report, combine
from scheduler.signals.differences import Differences, News, Prefilled
from scheduler.signals.engines import Engines
from scheduler.signals.load import Load, SourceAge
from scheduler.signals.observer import Own
from scheduler.signals.ours import LostLedger, OwnFirstTokens
from scheduler.signals.own import OwnRequests
from scheduler.signals.poll import STALE_SECONDS, Poll
from scheduler.signals.probe import ProbeSource
from scheduler.signals.prometheus import PrometheusSource
from scheduler.signals.tokens import TokensPerRequest
from scheduler.snapshot import Snapshot
from tickets_batch.settings import EngineSignal, LedgerSignal, Pool, ProbeSignal, PrometheusSignal, Signal


class PoolSignals:
    """Reads one pool's sources. `open` starts those that are asked beside everything else, `aclose` ends them.

    Raises SettingsError where a secret that a source needs is missing.
    """

    def __init__(self, pool: Pool, ledger: Ledger, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._ledger = ledger
        self._monotonic = monotonic
        named = list(named_signals(pool.signal))
        self._ledger_names = [name for name, signal in named if isinstance(signal, LedgerSignal)]
        self._engines = Engines(pool, [(n, s) for n, s in named if isinstance(s, EngineSignal)], monotonic)
        self._prometheus = [
            PrometheusSource(n, s, pool, monotonic) for n, s in named if isinstance(s, PrometheusSignal)
        ]
        self._probes = [ProbeSource(n, s, pool, monotonic) for n, s in named if isinstance(s, ProbeSignal)]
        self._tasks: list[asyncio.Task[None]] = []
        self._differences = Differences()
        self._prefilled = Prefilled()
        self._read_at = -math.inf
        self._lost = LostLedger(LEASE_SECONDS)
        self._requests = OwnRequests(pool.ttft_target_seconds)
        self._first_tokens = OwnFirstTokens(pool.ttft_target_seconds)
        self._tokens = TokensPerRequest(ledger.capacity)

    async def open(self) -> None:
        """Start asking; `aclose` is needed from then on."""
        polls: list[Poll[Any]] = [*self._engines.polls]
        polls += [source.poll for source in self._prometheus]
        polls += [source.poll for source in self._probes]
        self._tasks = [asyncio.create_task(poll.run(), name=f"signal {poll.name}") for poll in polls]

    async def aclose(self) -> None:
        """Stop asking and close what is open."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        sources: list[Engines | PrometheusSource | ProbeSource] = [self._engines, *self._prometheus, *self._probes]
        for source in sources:
            await source.aclose()

    async def read(self) -> Load:
        """The chat now, and what came since the reading before. Raises LedgerUnavailable.

        What an engine or Prometheus shows of the chat is told to the ledger, so that admission sees it at once.
        """
        asked = self._monotonic()
        snapshot = await self._ledger.snapshot()
        now = self._monotonic()
        if now - self._read_at > STALE_SECONDS:  # nobody looked for a while: what came meanwhile is no news
            self._differences = Differences()
            self._engines.begin_anew()
        self._read_at = now
        news = self._differences.take(snapshot)
        self._requests.take(news.batch, now)
        self._prefilled.take(news.prompt_tokens, now)
        self._first_tokens.take(news)
        self._tokens.learn(snapshot.interactive)
        outside = self._outside(snapshot, asked)
        if any(age.is_fresh for report in outside for age in report.ages):
            await self._ledger.observe(_largest(outside), STALE_SECONDS)
        reports = [
            self._ledger_report(snapshot, news),
            *outside,
            *(probe.report(now) for probe in self._probes),
            Report(is_congested=self._requests.is_congested(now)),
        ]
        return combine(
            reports,
            is_dedicated=self._ledger.capacity.is_dedicated,
            batch_in_flight=snapshot.batch,
            batch_expected_seconds=snapshot.batch_expected_seconds,
            prefill_rate=self._requests.prefill_rate,
            prefilled_per_second=self._prefilled.tokens_per_second,
        )

    def _outside(self, snapshot: Snapshot, asked: float) -> list[Report]:
        """What is seen of the chat beside the ledger."""
        probes = [source.probe for source in self._probes]
        own = Own(
            waiting=self._own_waiting(snapshot) + sum(probe.waiting_since is not None for probe in probes),
            first_tokens=self._first_tokens.count + sum(probe.first_tokens for probe in probes),
            late=self._first_tokens.late + sum(probe.late for probe in probes),
        )
        engines = self._engines.report(
            self._lost.most_slots(snapshot, asked),
            own,
            asked,
            lambda since: sum(probe.was_under_way(since) for probe in probes),
            self._tokens,
        )
        return [*([engines] if engines else []), *(source.report(self._tokens) for source in self._prometheus)]

    def _own_waiting(self, snapshot: Snapshot) -> int:
        """The most requests with a permit and without a first token: the ledger says of batch's how many tokens."""
        most = -(-snapshot.prefill_tokens // self._requests.smallest_prompt)
        return min(snapshot.batch.slots, most) + snapshot.interactive_waiting

    def _ledger_report(self, snapshot: Snapshot, news: News) -> Report:
        """Permits are counted whether or not anybody was told to look here; they make the pool seeing where he was."""
        age = snapshot.beat_age_seconds
        is_fresh = age is not None and age < STALE_SECONDS
        return Report(
            tuple(SourceAge(name, age, is_fresh) for name in self._ledger_names),
            in_flight=snapshot.interactive,
            waiting=snapshot.interactive_waiting,
            oldest_waiting_seconds=snapshot.oldest_waiting_seconds,
            arrivals=news.arrivals,
            ttfts_seconds=news.chat_ttfts_seconds,
            is_exact=bool(self._ledger_names) and is_fresh,
        )


def named_signals(signals: Sequence[Signal]) -> Iterator[tuple[str, Signal]]:
    """Each with its type as its name, and with a number where there are several of a type."""
    types = [signal.type for signal in signals]
    for place, signal in enumerate(signals):
        number = types[: place + 1].count(signal.type)
        yield signal.type if types.count(signal.type) == 1 else f"{signal.type} {number}", signal


def _largest(reports: list[Report]) -> Amount:
    largest = NOTHING
    for report in reports:
        largest = largest.at_least(report.in_flight)
    return largest
