"""One chat request from its admission to the last byte of its answer."""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Self

from gateway.caller import WhileThere
from gateway.door import Door, Visit
from gateway.error import bad_request, too_busy
from gateway.exchange import Exchange
from gateway.hearing import Hearing
from gateway.metrics import Metrics
from gateway.outcome import Outcome
from gateway.prompt import Prompt
from gateway.upstream import Answer, Headers, Upstream, end_to_end, towards_model
from scheduler.estimate import TokenEstimator
from scheduler.permit import Ask, Reason, Refusal
from tickets_batch.lane import Broken
from tickets_batch.settings import Pool, Settings, reveal

log = logging.getLogger(__name__)

# The answer is listened to, so it must come as it is. The body's type is what we have read it as.
_ANSWER_AS_IT_IS = (b"accept-encoding", b"identity")
_SET_ANEW = frozenset({b"accept-encoding"})


@dataclass(slots=True)
class ChatPool:
    """A pool that takes chat: its door, its server, and what is known of its tokens."""

    pool: Pool
    door: Door
    upstream: Upstream
    authorization: bytes | None  # of our own, for callers whose keys the gateway has checked
    estimator: TokenEstimator = field(default_factory=TokenEstimator)

    @classmethod
    def connect(cls, settings: Settings, pool: Pool) -> Self:
        """Nothing is sent yet. Raises SettingsError."""
        door = Door.connect(reveal(settings.redis_url or ""), pool, settings.gateway.wait_ms / 1000)
        authorization = b"Bearer " + pool.api_key.reveal().encode() if pool.api_key else None
        return cls(pool, door, Upstream(pool), authorization)

    async def aclose(self) -> None:
        """Close every connection."""
        await self.door.aclose()
        self.upstream.close()


class Chat:
    """Serves the chat requests of one gateway."""

    def __init__(self, metrics: Metrics, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._metrics = metrics
        self._monotonic = monotonic

    async def serve(self, exchange: Exchange, path: bytes, prompt: Prompt, pool: ChatPool, headers: Headers) -> Outcome:
        """Admit, ask the model, pass its answer on. Raises Denied where there is none, Gone."""
        async with WhileThere(exchange.receive) as caller:
            caller.watch()
            visit = await self._admit(prompt, pool)
            try:
                length = (b"content-length", b"%d" % len(prompt.body))
                headers = [*towards_model(headers, _SET_ANEW), _ANSWER_AS_IT_IS, length]
                answer = await pool.upstream.send("POST", path, headers, prompt.body)
                try:
                    outcome = await self._relay(exchange, answer, prompt, pool, visit)
                finally:
                    answer.close()
            finally:
                pool.door.leave(visit)
        if outcome is not Outcome.UPSTREAM_FAILED:
            await exchange.end()
        return outcome

    async def _admit(self, prompt: Prompt, pool: ChatPool) -> Visit:
        most = pool.door.most_tokens - prompt.output_tokens - prompt.exact_tokens
        tokens = pool.estimator.within(prompt.size_bytes, most) + prompt.exact_tokens
        visit = await pool.door.enter(Ask(tokens, prompt.output_tokens, streamed=prompt.is_streamed))
        if isinstance(visit, Refusal):
            if visit.reason is Reason.TOO_LARGE:
                raise bad_request(
                    f"this request needs about {tokens} prompt tokens and {prompt.output_tokens} for its answer, more "
                    "than the chat's share of the model ever has: shorten it, or ask for a shorter answer",
                    "context_length_exceeded",
                )
            raise too_busy(visit.retry_after_seconds)
        if visit.is_open:
            self._metrics.admitted_open.inc()
        return visit

    async def _relay(self, exchange: Exchange, answer: Answer, prompt: Prompt, pool: ChatPool, visit: Visit) -> Outcome:
        hearing = Hearing()
        await exchange.start(answer.status, end_to_end(answer.headers))
        try:
            async for chunk in answer:
                await exchange.write(chunk)
                if hearing.hear(chunk) and visit.is_waiting:
                    pool.door.first_token(visit)
                    self._metrics.ttft.observe(self._monotonic() - exchange.arrived)
        except Broken as error:
            log.warning("pool %s: an answer was cut short: %s", pool.pool.name, error)
            return Outcome.UPSTREAM_FAILED
        if answer.status >= 400:
            return Outcome.ENGINE_ERROR
        counted = hearing.prompt_tokens()
        if counted is not None and prompt.is_text:
            pool.estimator.learn(prompt.size_bytes, pool.estimator.of_bytes(prompt.size_bytes), counted)
        return Outcome.ANSWERED
