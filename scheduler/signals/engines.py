"""The engines of one pool as one source: what they show, less what is ours."""

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace

from scheduler.signals.combine import Report
from scheduler.signals.engine import EngineMetrics
from scheduler.signals.observer import Observed, Observer, Own
from scheduler.signals.poll import STALE_SECONDS, Poll
from scheduler.signals.replicas import Scrape
from scheduler.signals.tokens import TokensPerRequest
from tickets_batch.settings import EngineSignal, Pool

HELD_SECONDS = 2 * STALE_SECONDS  # how far back the most that batch held is looked up


class Engines:
    """Asks every configured address; what is shown of several adds up.

    `polls` are to be run beside everything else. Raises SettingsError when the pool's key is missing.
    """

    def __init__(
        self, pool: Pool, signals: Sequence[tuple[str, EngineSignal]], monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._metrics = [EngineMetrics(pool, signal, monotonic) for _, signal in signals]
        self.polls = [
            Poll(name, pool.name, metrics.scrape, monotonic=monotonic)
            for (name, _), metrics in zip(signals, self._metrics, strict=True)
        ]
        self._target_seconds = pool.ttft_target_seconds
        self.begin_anew()
        self._came_before = float("-inf")
        self._held: deque[tuple[float, int]] = deque()

    async def aclose(self) -> None:
        """Close what is open."""
        for metrics in self._metrics:
            await metrics.aclose()

    def begin_anew(self) -> None:
        """Forget what was seen: what has come since is no news."""
        self._observer = Observer(self._target_seconds)
        self._observed = Observed()

    def report(
        self,
        batch_slots: int,
        own: Own,
        snapshot_at: float,
        was_probed: Callable[[float], int],
        tokens: TokensPerRequest,
    ) -> Report | None:
        """What the engines say of the chat, None without any; arrivals and times to first token of each scrape once.

        `batch_slots` is what batch holds at `snapshot_at` (monotonic seconds), and `was_probed` tells how many probes
        may have been in the engine since a moment.
        """
        if not self.polls:
            return None
        self._hold(snapshot_at, batch_slots)
        ages = tuple(poll.age for poll in self.polls)
        answers = [answer for poll in self.polls if (answer := poll.fresh) is not None]
        if not answers:
            return Report(ages)
        # The snapshot is taken after the scrapes: what batch began before them is then in it.
        if min(answer.came for answer in answers) > self._came_before and max(a.came for a in answers) <= snapshot_at:
            self._came_before = max(answer.came for answer in answers)
            since = min(answer.asked for answer in answers)
            most = replace(own, most_slots=self._most_held(since) + was_probed(since))
            self._observed = self._observer.take([answer.value for answer in answers], self._totals(), most)
        else:
            self._observed = replace(self._observed, arrivals=0, ttfts_seconds=())
        observed = self._observed
        return Report(
            ages,
            in_flight=tokens.amount(observed.slots),
            waiting=observed.waiting,
            arrivals=observed.arrivals,
            ttfts_seconds=observed.ttfts_seconds,
            is_congested=observed.is_congested,
            is_estimate=True,
        )

    def _totals(self) -> list[Scrape]:
        """The last scrape of each address, however old: its counters stand."""
        return [poll.newest.value for poll in self.polls if poll.newest is not None]

    def _hold(self, at: float, slots: int) -> None:
        self._held.append((at, slots))
        while self._held[0][0] < at - HELD_SECONDS:
            self._held.popleft()

    def _most_held(self, since: float) -> int:
        """The most that batch held from the last snapshot before `since` on."""
        before = [slots for at, slots in self._held if at <= since][-1:]
        return max([*before, *(slots for at, slots in self._held if at > since)])
