"""One job in flight: called, judged, its permit given back, its outcome handed to the writer."""

import asyncio
import logging
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from jobs.job import Finish, Job
from jobs.outcomes import Attempt, Symptom, Usage
from jobs.retry import RetryPolicy, decide
from scheduler.permit import Permit
from workers.brief import Brief
from workers.client import InFlight
from workers.endpoint import Endpoint
from workers.health import SIGNS, Sign

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Flight:
    """A job that has its permit. `withdraw` may be called at any moment, from the loop."""

    job: Job
    brief: Brief
    endpoint: Endpoint
    permit: Permit
    mark: int  # of the endpoint's health
    policy: RetryPolicy
    put: Callable[[Finish], None]
    call: InFlight = field(default_factory=InFlight)
    task: "asyncio.Task[None] | None" = None
    withdrawn_for: Symptom | None = None
    is_lost: bool = False  # the lease is another's: nothing is written
    is_streamed: bool = False  # its first token came before the rest of the answer
    is_calling: bool = False  # only then may the task be cancelled: what follows the call must not be cut short

    def withdraw(self, symptom: Symptom = Symptom.WITHDRAWN) -> None:
        """Close the request, so that the engine stops; the first reason stands. After its end it changes nothing."""
        if self.withdrawn_for is None:
            self.withdrawn_for = symptom
            if self.is_calling and self.task is not None:
                self.task.cancel()

    def lose(self) -> None:
        """The lease went to another worker: stop, and write nothing."""
        self.is_lost = True
        self.withdraw()

    async def fly(self) -> None:
        """The whole pipeline; never raises but for a bug, and then its permit is given back nevertheless."""
        try:
            attempt = await self._call()
        except Exception:
            self.endpoint.health.not_made(self.mark)
            await self.endpoint.gate.give_back(self.permit, aborted=True)
            raise
        try:
            self._learn(attempt)
            await self._note_health(attempt)
            if not self.is_lost:
                self._hand_over(attempt)
        finally:
            # Last: what this answer says of the pool or the batch is known before its place is free for the next.
            await self._give_back(attempt)

    async def _call(self) -> Attempt:
        if self.withdrawn_for is None:
            self.is_calling = True
            try:
                return await self._classify()
            except asyncio.CancelledError:
                if self.task is not None:
                    self.task.uncancel()
            finally:
                self.is_calling = False
        return self._in_vain()

    def _in_vain(self) -> Attempt:
        """The attempt of a withdrawn call; engines report no usage of it, so what they have read is estimated."""
        attempt = self.endpoint.client.withdrawn(self.call, self.withdrawn_for or Symptom.STOPPING)
        if self.call.usage is not None:
            return attempt
        prompt_tokens = self.permit.ask.prompt_tokens
        if attempt.ttft_seconds is None:
            prompt_tokens = self.endpoint.durations.prefilled(prompt_tokens, attempt.seconds)
        return replace(attempt, usage=Usage(prompt_tokens, attempt.usage.completion_tokens))

    async def _classify(self) -> Attempt:
        brief = self.brief
        return await self.endpoint.client.classify(
            brief.messages(self.job),
            brief.response_format,
            brief.spec.max_output_tokens,
            parse=brief.parse,
            in_flight=self.call,
            on_first_token=self._first_token,
        )

    def _first_token(self) -> None:
        self.is_streamed = True
        self.endpoint.heard(whole=False)
        # Not awaited: the answer must not wait for the ledger. A permit already given back is no error there.
        task = asyncio.ensure_future(self.endpoint.gate.first_token(self.permit))
        _BACKGROUND.add(task)
        task.add_done_callback(_BACKGROUND.discard)

    async def _give_back(self, attempt: Attempt) -> None:
        was_sent = self.call.started_at is not None and attempt.symptom is not Symptom.UNREACHABLE
        await self.endpoint.gate.give_back(self.permit, aborted=was_sent and not self.call.is_over)

    def _learn(self, attempt: Attempt) -> None:
        usage, ask = self.call.usage, self.permit.ask
        is_answer = self.call.is_over and SIGNS[attempt.symptom] is Sign.WORKS
        if is_answer and attempt.ttft_seconds is not None and not self.is_streamed:
            self.endpoint.heard(whole=True)
        if usage is None or usage.prompt_tokens < 1:
            return
        if not self.job.truncated:
            size = self.brief.prompt_bytes(self.job)
            self.endpoint.estimator.learn(size, ask.prompt_tokens, usage.prompt_tokens)
            if self.endpoint.cutting.heard(size, usage.prompt_tokens):
                log.warning(
                    "pool %s: the engine counts no prompt as more than %d tokens, whatever its size: it seems to cut "
                    "longer ones, whose labels are then of their remains; raise its context length (Ollama: num_ctx)",
                    self.endpoint.pool.name,
                    self.endpoint.cutting.most_tokens,
                )
        if is_answer:
            self.endpoint.durations.learn(
                usage.prompt_tokens,
                usage.completion_tokens,
                ask.output_tokens,
                attempt.seconds,
                attempt.ttft_seconds if self.is_streamed else None,  # the time of a whole answer is no prefill
            )

    async def _note_health(self, attempt: Attempt) -> None:
        health, pool = self.endpoint.health, self.endpoint.pool.name
        was_blocked = health.blocked
        pause_seconds = health.end(self.mark, attempt, self.job.id)
        if health.blocked and not was_blocked:
            log.warning("pool %s gets no more jobs but probes: %s", pool, health.blocked)
        elif was_blocked and not health.blocked:
            log.info("pool %s gets jobs again", pool)
        if pause_seconds is not None:
            log.warning("pool %s rests for %.1f s: %s", pool, pause_seconds, attempt.detail)
            await self.endpoint.gate.pause(pause_seconds)

    def _hand_over(self, attempt: Attempt) -> None:
        outcome = decide(
            attempt,
            job=self.job,
            policy=self.policy,
            endpoint_failing=self.endpoint.health.failing is not None,
            jitter=random.random,
        )
        self.put(Finish(self.job, outcome, attempt))


_BACKGROUND: set["asyncio.Task[None]"] = set()  # the loop keeps only weak references to its tasks
