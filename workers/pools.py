"""The pools of one process, and which of them takes a job: the first of its batch's list that admits it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from jobs.job import Job
from scheduler.permit import Permit, Reason
from workers.brief import Brief
from workers.endpoint import Endpoint
from workers.health import FIRST_PROBE_SECONDS, LONGEST_PROBE_SECONDS

ASK_AGAIN_SECONDS = 0.05  # after a refusal, unless one of our own permits comes back first

# A smaller job may be admitted at once where one was refused for these.
_OF_ITS_SIZE = frozenset({Reason.LIMIT, Reason.PROTECTED, Reason.PREFILL, Reason.TOO_LARGE})


@dataclass(frozen=True, slots=True)
class Granted:
    """A pool took a job; `mark` is of its health."""

    endpoint: Endpoint
    permit: Permit
    mark: int


@dataclass(frozen=True, slots=True)
class Refused:
    """A pool did not take a job; `reason` is None where it was not even asked."""

    endpoint: Endpoint
    reason: Reason | None
    again_seconds: float

    @property
    def is_of_its_size(self) -> bool:
        """Whether a smaller job may be admitted at once."""
        return self.reason in _OF_ITS_SIZE


@dataclass(slots=True)
class _Wait:
    """A batch that this process cannot serve, until when it leaves it alone, and the probes it has made in vain."""

    until: float
    probes: int = 0


class Pools:
    """Every pool that this process can call, by name. Methods run on one event loop.

    Where none of a batch's pools can serve, the store blocks the batch and gives out one job at a time as a probe. But
    another process may well be able to serve it, and lifts the block with its next answer: so each leaves it alone by
    itself too, for five seconds, then for twice as long after each probe in vain, up to five minutes.
    """

    def __init__(self, endpoints: Mapping[str, Endpoint], monotonic: Callable[[], float]) -> None:
        self._endpoints = endpoints
        self._monotonic = monotonic
        self._waits: dict[str, _Wait] = {}

    def of(self, brief: Brief) -> list[Endpoint]:
        """The pools of a batch in its order, as far as the settings of this process have them."""
        return [self._endpoints[name] for name in brief.pools if name in self._endpoints]

    def is_blocked(self, brief: Brief) -> bool:
        """Whether none of a batch's pools can serve here: then one job at a time finds out more."""
        return all(endpoint.health.blocked for endpoint in self.of(brief))

    def is_to_wait(self, brief: Brief) -> bool:
        """Whether none of a batch's pools can serve here, and it is not yet time to find out more."""
        wait = self._waits.get(brief.batch_id)
        return wait is not None and self.is_blocked(brief) and self._monotonic() < wait.until

    def probe_now(self, brief: Brief) -> None:
        """The store asks for a probe."""
        if wait := self._waits.get(brief.batch_id):
            wait.until = self._monotonic()

    def found_blocked(self, brief: Brief) -> bool:
        """A job of this batch could not succeed: whether that is news for the store.

        It is none where another pool can serve, nor of what was sent before the batch was left alone.
        """
        if not self.is_blocked(brief) or self.is_to_wait(brief):
            return False
        now = self._monotonic()
        self._waits = {key: wait for key, wait in self._waits.items() if now - wait.until < LONGEST_PROBE_SECONDS}
        last = self._waits.get(brief.batch_id)
        probes = 0 if last is None else last.probes + 1
        seconds = min(LONGEST_PROBE_SECONDS, FIRST_PROBE_SECONDS * 2.0 ** min(probes, 10))
        self._waits[brief.batch_id] = _Wait(now + seconds, probes)
        return True

    def served(self, brief: Brief) -> None:
        """A job of this batch ended at a pool that can serve."""
        self._waits.pop(brief.batch_id, None)

    def why_too_large(self, brief: Brief, job: Job) -> str | None:
        """Why none of a batch's pools could ever carry a job, each by its own figures; None where one could."""
        size, cap = brief.prompt_bytes(job), brief.spec.max_output_tokens
        figures = []
        for endpoint in self.of(brief):
            needed, most = endpoint.ask(size, cap).amount.tokens, endpoint.most_tokens
            if needed <= most:
                return None
            figures.append(f"of pool {endpoint.pool.name} it needs {needed:,} tokens, batch may hold {most:,}")
        return "; ".join(figures)

    async def offer(self, brief: Brief, job: Job, endpoints: Sequence[Endpoint]) -> Granted | list[Refused]:
        """Ask pool after pool for a permit. Raises LedgerUnavailable."""
        is_probe = self.is_blocked(brief) and not self.is_to_wait(brief)
        if is_probe:
            endpoints = [min(endpoints, key=lambda endpoint: endpoint.health.probes)]  # they take turns
        refusals: list[Refused] = []
        for endpoint in endpoints:
            answer = await _ask(brief, job, endpoint, is_probe=is_probe)
            if isinstance(answer, Granted):
                return answer
            refusals.append(answer)
        return refusals

    def smaller(self, brief: Brief, waiting: Iterable[Job], first: Job, refusals: Sequence[Refused]) -> Job | None:
        """The smallest of those waiting, where its prospects are much better than the first one's: asking costs."""
        by_size = [refusal for refusal in refusals if refusal.is_of_its_size]
        smallest = min(waiting, key=brief.prompt_bytes, default=first)
        size, first_size = brief.prompt_bytes(smallest), brief.prompt_bytes(first)
        if not by_size or size >= first_size:
            return None
        if any(refusal.reason is Reason.TOO_LARGE for refusal in by_size):
            return smallest
        endpoint, cap = by_size[0].endpoint, brief.spec.max_output_tokens
        small, large = endpoint.ask(size, cap), endpoint.ask(first_size, cap)
        is_half = 2 * small.amount.tokens < large.amount.tokens or 2 * small.expected_ms < large.expected_ms
        return smallest if is_half else None


async def _ask(brief: Brief, job: Job, endpoint: Endpoint, *, is_probe: bool) -> Granted | Refused:
    mark = endpoint.health.begin(probe=is_probe)
    if mark is None:
        return Refused(endpoint, None, max(ASK_AGAIN_SECONDS, endpoint.health.pause_seconds))
    answer = None
    try:
        answer = await endpoint.gate.ask(endpoint.ask(brief.prompt_bytes(job), brief.spec.max_output_tokens))
    finally:
        if not isinstance(answer, Permit):
            endpoint.health.not_made(mark)
    if isinstance(answer, Permit):
        return Granted(endpoint, answer, mark)
    return Refused(endpoint, answer.reason, max(ASK_AGAIN_SECONDS, answer.retry_after_seconds or 0.0))
