"""The line to Redis: scripts called by many at once go out together, and their answers come back together."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha1
from typing import Any

from redis.asyncio import Connection, Redis
from redis.asyncio.retry import Retry
from redis.backoff import ExponentialWithJitterBackoff
from redis.connection import HiredisRespSerializer
from redis.exceptions import NoScriptError

CALL_SECONDS = 3.0  # repeats and new connections included: holders have results to write and requests to stop
TIMEOUT_SECONDS = 2.0
RETRIES = 2  # every script may be repeated: after a lost answer it finds what it did
AT_ONCE = 100  # calls in a group: while the server works on one, other processes wait


@dataclass(frozen=True, slots=True)
class _Call:
    script: str
    arguments: tuple[str | int, ...]
    asked_at: float  # on the loop's clock
    answer: "asyncio.Future[Any]"


class PackingConnection(Connection):
    """A connection whose commands are packed in C, as the library's blocking connections pack theirs."""

    _packer = HiredisRespSerializer()

    def pack_command(self, *args: Any) -> list[bytes]:
        """The bytes of a command."""
        packed: list[bytes] = self._packer.pack(*args)
        return packed


def connect(redis_url: str) -> Redis:
    """A client for a line; nothing is sent yet. Raises ValueError when the URL is none."""
    return Redis.from_url(
        redis_url,
        connection_class=PackingConnection,  # with TLS the library takes its own
        decode_responses=True,
        socket_timeout=TIMEOUT_SECONDS,
        socket_connect_timeout=TIMEOUT_SECONDS,
        socket_keepalive=True,
        health_check_interval=15,
        retry=Retry(ExponentialWithJitterBackoff(base=0.02, cap=0.2), RETRIES),
    )


class Line:
    """Calls scripts that share their keys and first arguments; for one event loop.

    What is asked while a group is on its way goes out with the next one: in a group a call costs this process half of
    what it costs alone, and who is alone waits no longer.
    """

    def __init__(
        self, redis: Redis, scripts: Mapping[str, str], keys: Sequence[str], common: Sequence[int | bytes]
    ) -> None:
        self._redis = redis
        self._scripts = scripts
        shared = [part if isinstance(part, bytes) else str(part).encode() for part in (len(keys), *keys, *common)]
        # By this hash Redis knows a script; nothing depends on its strength.
        hashes = {name: sha1(text.encode(), usedforsecurity=False).hexdigest() for name, text in scripts.items()}
        self._beginnings = {name: ("EVALSHA", found.encode(), *shared) for name, found in hashes.items()}
        self._waiting: list[_Call] = []
        self._sender: asyncio.Task[None] | None = None

    async def call(self, script: str, *arguments: str | int) -> Any:
        """What a script answers. Raises RedisError, OSError; TimeoutError after CALL_SECONDS.

        A script must bear to be run twice: where an answer is lost on the way, it is sent again.
        """
        loop = asyncio.get_running_loop()
        call = _Call(script, arguments, loop.time(), loop.create_future())
        self._waiting.append(call)
        if self._sender is None:
            self._sender = asyncio.create_task(self._send_all())
        return await call.answer

    async def aclose(self) -> None:
        """Close the connections; who still waits for an answer is cancelled."""
        if self._sender is not None:
            self._sender.cancel()
            await asyncio.wait([self._sender])
        for call in self._waiting:  # where the sender had not begun
            call.answer.cancel()
        await self._redis.aclose()

    async def _send_all(self) -> None:
        group: list[_Call] = []
        try:
            while self._waiting:
                group, self._waiting = self._waiting[:AT_ONCE], self._waiting[AT_ONCE:]
                async with asyncio.timeout_at(group[0].asked_at + CALL_SECONDS):
                    await self._send([call for call in group if not call.answer.done()])
        except BaseException as error:
            # Those behind the group too: they have waited through the same failure, and a try of theirs would take
            # its time again.
            left, self._waiting = [*group, *self._waiting], []
            for call in left:
                _fail(call, error)
            if not isinstance(error, Exception):
                raise
        finally:
            self._sender = None

    async def _send(self, calls: list[_Call]) -> None:
        unknown = await self._try(calls)
        if unknown:  # the server has restarted, or was told to forget its scripts
            await self._load()
            for call in await self._try(unknown):
                _fail(call, NoScriptError("the server forgets a script as soon as it is loaded"))

    async def _load(self) -> None:
        """All of them: were some known and others not, a release could overtake the first token before it."""
        pipeline = self._redis.pipeline(transaction=False)
        for text in self._scripts.values():
            pipeline.script_load(text)
        await pipeline.execute()

    async def _try(self, calls: list[_Call]) -> list[_Call]:
        """Answer the calls; those whose script the server does not know are left, and returned."""
        pipeline = self._redis.pipeline(transaction=False)
        for call in calls:
            pipeline.execute_command(*self._beginnings[call.script], *call.arguments)
        answers = await pipeline.execute(raise_on_error=False)
        unknown = []
        for call, answer in zip(calls, answers, strict=True):
            if isinstance(answer, NoScriptError):
                unknown.append(call)
            elif isinstance(answer, Exception):
                _fail(call, answer)
            elif not call.answer.done():  # its caller may have gone
                call.answer.set_result(answer)
        return unknown


def _fail(call: _Call, error: BaseException) -> None:
    if call.answer.done():
        return
    if isinstance(error, Exception):
        call.answer.set_exception(error)
    else:
        call.answer.cancel()
