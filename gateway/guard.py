"""The door for applications that call the model themselves: each request of theirs is admitted as the chat's.

async with Guard.connect("tickets-batch.toml", pool="gpu") as guard:
    async with guard.request(messages, max_output_tokens=300) as request:
        async for chunk in await client.chat.completions.create(..., messages=messages, stream=True):
            request.first_token()
"""

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self

from gateway.door import Door, Visit, chat_pools
from gateway.error import retry_after
from gateway.prompt import weigh
from scheduler.estimate import TokenEstimator
from scheduler.permit import Ask, Reason, Refusal
from tickets_batch.errors import SettingsError, UserError
from tickets_batch.local.home import Home
from tickets_batch.settings import Pool, Settings, load, reveal

Messages = Iterable[Mapping[str, Any]]


class TooBusy(UserError):
    """The chat's own share of the model is in use: come again after `retry_after_seconds`, which is jittered."""

    def __init__(self, retry_after_seconds: float) -> None:
        super().__init__(f"the model is busy with other chat requests: try again in {retry_after_seconds:.1f} s")
        self.retry_after_seconds = retry_after_seconds


class TooLarge(UserError):
    """The request is larger than the chat's share of the model ever is: shorten it, or cap its answer lower."""


class GuardedRequest:
    """One request that was admitted. `is_open`: Redis was away, so that nobody was asked."""

    def __init__(self, door: Door, visit: Visit) -> None:
        self._door = door
        self._visit = visit
        self.is_open = visit.is_open

    def first_token(self) -> None:
        """The model has begun to answer; may be called for every chunk."""
        self._door.first_token(self._visit)


class Guard:
    """Admits an application's own chat requests to one pool; an async context manager, one for a process and loop.

    While it is entered it tells the scheduler each second that it is there. Without Redis it admits everything.
    """

    def __init__(self, door: Door) -> None:
        self._door = door
        self._estimator = TokenEstimator()

    @classmethod
    def connect(
        cls, config: Path | str | Settings | None = None, *, pool: str | None = None, redis_url: str | None = None
    ) -> Self:
        """A guard for a pool of the settings (None: the first that takes chat), on their Redis or another.

        `config` is a settings file, or settings already loaded; None looks where the command looks. Nothing is sent
        yet. Raises SettingsError.
        """
        settings = config if isinstance(config, Settings) else load(None if config is None else Path(config))
        url = redis_url or (reveal(settings.redis_url) if settings.redis_url else Home(settings.home).redis_url())
        if url is None:
            raise SettingsError("no Redis to keep the permits in: set redis_url, or start tickets-batch up here first")
        return cls(Door.connect(url, _pool(settings, pool), settings.gateway.wait_ms / 1000))

    async def __aenter__(self) -> Self:
        self._door.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._door.aclose()

    @property
    def is_away(self) -> bool:
        """True while Redis does not answer and requests are admitted unasked."""
        return self._door.is_away

    @asynccontextmanager
    async def request(
        self,
        messages: Messages = (),
        *,
        prompt_tokens: int | None = None,
        max_output_tokens: int,
        streamed: bool = True,
    ) -> AsyncIterator[GuardedRequest]:
        """Room for one request while the block runs, of a size estimated from `messages` or given as `prompt_tokens`.

        Waits a moment for room (gateway.wait_ms of the settings). Raises TooBusy, TooLarge. Of a request that is not
        `streamed` no first token is awaited.
        """
        tokens = prompt_tokens
        if tokens is None:
            tokens = self._estimator.within(weigh(messages), self._door.most_tokens - max_output_tokens)
        visit = await self._door.enter(Ask(tokens, max_output_tokens, streamed=streamed))
        if isinstance(visit, Refusal):
            if visit.reason is Reason.TOO_LARGE:
                raise TooLarge(
                    f"{tokens} prompt tokens and {max_output_tokens} for the answer are more than the chat's share "
                    "of the model ever is: shorten the messages, or lower max_output_tokens"
                )
            raise TooBusy(retry_after(visit.retry_after_seconds))
        try:
            yield GuardedRequest(self._door, visit)
        finally:
            self._door.leave(visit)


def _pool(settings: Settings, name: str | None) -> Pool:
    pools = chat_pools(settings)
    for pool in pools:
        if name in (None, pool.name):
            return pool
    raise SettingsError(f"no pool for chat is called {name}: there is {', '.join(pool.name for pool in pools)}")
