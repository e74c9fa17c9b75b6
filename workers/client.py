"""The model client: one streamed call for one job, and everything seen on the wire as an `Attempt`."""

import asyncio
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import h11
import httpx2
import openai
from pydantic_core import to_json

from jobs.outcomes import Attempt, Symptom, Usage
from jobs.text import storable
from tickets_batch.errors import SettingsError
from tickets_batch.settings import Pool
from tickets_batch.words import counted
from workers import symptoms
from workers.detail import Censor
from workers.engine_error import engine_error, read_error
from workers.lanes import Answer, Lanes
from workers.priority import BatchPriority, refuses_priority
from workers.reply import Reply, UnreadableChunk
from workers.sse import EventParser, OversizedStream
from workers.symptoms import Clean, Finding
from workers.verdict import Parse, verdict

CONNECT_SECONDS = 5.0
AFTER_END_SECONDS = 1.0  # so long a server that has said [DONE] has to end the response: only then its lane is reused
ERROR_BODY_BYTES = 64 * 1024
RAW_CHARS = 2000

Messages = Sequence[Mapping[str, str]]

_HEADERS: dict[str, str | openai.Omit] = {
    "Accept": "text/event-stream",
    "Accept-Encoding": "identity",
    # What the library would say of this machine, and what it would take from the environment for another service.
    **{
        f"X-Stainless-{name}": openai.Omit()
        for name in (
            *("Lang", "Package-Version", "OS", "Arch", "Runtime", "Runtime-Version", "Async"),
            *("Retry-Count", "Read-Timeout"),
        )
    },
    "OpenAI-Organization": openai.Omit(),
    "OpenAI-Project": openai.Omit(),
}


class _NoStream(Exception):
    """The endpoint answered with something else than a stream of events."""

    def __init__(self, answer: Answer, body: bytes) -> None:
        super().__init__(answer.status)
        self.answer = answer
        self.body = body


class _PriorityRefused(Exception):
    """The server takes no priority: the same request may be sent again without."""


class _Overheard(httpx2.AsyncBaseTransport):
    """Keeps the request that the library would send, and sends nothing."""

    request: httpx2.Request

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Nothing was said."""
        self.request = request
        return httpx2.Response(204)


@dataclass(slots=True)
class InFlight:
    """One call while it runs, for whoever may have to withdraw it.

    `tokens` counts the pieces of text that have come in: at least so many tokens were made. `usage` is what the engine
    has reported so far, None while it has not. `ttft_seconds` is None until the first token. `is_over` says that the
    engine has done with the call; where it has not, and the connection is closed, it may still be at work.
    """

    started_at: datetime | None = None
    started: float = 0.0  # on the clock that measures seconds
    ttft_seconds: float | None = None
    tokens: int = 0
    usage: Usage | None = None
    http_status: int | None = None
    is_over: bool = False


class ModelClient:
    """Calls the model of one pool, at most `at_once` calls at a time. One per process, on one event loop.

    Goes to the pool's base_url and nowhere else: no proxy from the environment, no redirect. Retries nothing, but for
    what a server refuses because of its priority. Raises SettingsError when the base_url or the key cannot be used.
    """

    def __init__(
        self,
        pool: Pool,
        *,
        at_once: int,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._pool = pool
        self._priority = BatchPriority(pool.name, pool.engine)
        self._now = now
        self._monotonic = monotonic
        self._key = pool.api_key.reveal() if pool.api_key else None
        self._url = pool.base_url.rstrip("/") + "/chat/completions"
        self._head: bytes | None = None
        try:
            self._lanes = Lanes(httpx2.URL(self._url), at_once, min(CONNECT_SECONDS, pool.request_timeout_seconds))
        except httpx2.InvalidURL as error:
            raise SettingsError(f"pool {pool.name}: base_url {pool.base_url!r} is not a URL: {error}") from error
        # Without a key of ours, none from the environment either.
        headers = _HEADERS if self._key else {**_HEADERS, "Authorization": openai.Omit()}
        self._options: openai.RequestOptions = {"headers": headers}

    @property
    def priority(self) -> int | None:
        """The priority that requests carry; None where the engine knows none, or has refused it."""
        return self._priority.value

    async def aclose(self) -> None:
        """Close every connection; the client is of no use afterwards."""
        self._lanes.close()

    async def classify(
        self,
        messages: Messages,
        response_format: Mapping[str, Any],
        max_output_tokens: int,
        *,
        parse: Parse,
        in_flight: InFlight | None = None,
        on_first_token: Callable[[], None] | None = None,
    ) -> Attempt:
        """One call to the model; what it showed, good or bad, is the result.

        The last message is the ticket: no detail repeats its text. `on_first_token` runs on the loop and must not
        block; it is not called where the whole answer came at once. Zero prompt tokens mean that the engine did not
        report its usage; completion tokens are then the pieces of text that came. A cancelled call closes its
        connection, so that the engine stops, and raises CancelledError; `withdrawn` makes the attempt of it from
        `in_flight`.
        """
        call = in_flight or InFlight()
        call.started_at = self._now()
        call.started = self._monotonic()
        clean = Censor(messages[-1]["content"], self._key)
        priority = self._priority.value
        body = self._body(messages, response_format, max_output_tokens, priority)
        try:
            return await self._once(call, body, on_first_token, parse, clean, priority)
        except _PriorityRefused:
            body = self._body(messages, response_format, max_output_tokens, None)
            attempt = await self._once(call, body, on_first_token, parse, clean, None)
            if call.is_over and attempt.symptom in (None, Symptom.INVALID_OUTPUT):  # else it was not for its priority
                self._priority.switch_off()
            return attempt

    def withdrawn(self, call: InFlight, symptom: Symptom, detail: str = "") -> Attempt:
        """The attempt of a call that was cancelled: its tokens were made in vain."""
        return self._seen(call, Finding(symptom, detail))

    async def _once(
        self,
        call: InFlight,
        body: bytes,
        on_first_token: Callable[[], None] | None,
        parse: Parse,
        clean: Clean,
        priority: int | None,
    ) -> Attempt:
        """Send one request; what it showed. Raises _PriorityRefused where it carried a priority that is not taken."""
        reply = Reply()
        finding = None
        try:
            async with asyncio.timeout(self._pool.request_timeout_seconds) as deadline:
                await self._stream(body, reply, call, deadline, on_first_token)
        except TimeoutError:
            finding = self._timed_out(call)
        except _NoStream as seen:
            status = seen.answer.status
            if priority is not None and refuses_priority(status, read_error(seen.body)):
                raise _PriorityRefused from None
            call.http_status, call.is_over = status, True
            finding = symptoms.of_response(status, seen.answer.headers, seen.body, now=self._now(), clean=clean)
        except (OversizedStream, UnreadableChunk) as error:
            finding = Finding(Symptom.INVALID_OUTPUT, str(error) or "a chunk of the stream is not JSON")
        except (httpx2.HTTPError, OSError) as error:
            finding = symptoms.of_exception(error, self._pool.base_url)
        if priority is not None and reply.error and refuses_priority(200, engine_error(reply.error)):
            raise _PriorityRefused
        return self._attempt(call, reply, finding, parse, clean)

    async def _stream(
        self,
        body: bytes,
        reply: Reply,
        call: InFlight,
        deadline: asyncio.Timeout,
        on_first_token: Callable[[], None] | None,
    ) -> None:
        """Send the request and read its answer into `reply` and `call`, until its end or until it is of no use."""
        parser = EventParser()
        loop = asyncio.get_running_loop()
        self._head = self._head or await self._first_bytes()
        async with await self._lanes.send(b"%b%d\r\n\r\n%b" % (self._head, len(body), body)) as answer:
            call.http_status = answer.status
            await _refuse_what_is_no_stream(answer)
            async for received in answer.content:
                for data in parser.feed(received):
                    reply.take(data)
                if reply.tokens and call.ttft_seconds is None:
                    call.ttft_seconds = self._monotonic() - call.started
                    if on_first_token is not None:
                        loop.call_soon(_tell, on_first_token, reply)  # after what has already come in was read
                call.tokens, call.usage, call.is_over = reply.tokens, reply.usage, reply.complete
                if reply.error or reply.runaway:
                    return
                if reply.done:  # an end that is later with each piece would never come
                    deadline.reschedule(min(deadline.when() or math.inf, loop.time() + AFTER_END_SECONDS))
            for data in parser.close():
                reply.take(data)

    async def _first_bytes(self) -> bytes:
        """The head of every request as the library writes it, up to the length of its body.

        It is the same for each, and the library takes as much CPU to write it as all the rest of a call.
        """
        overheard = _Overheard()
        http_client = httpx2.AsyncClient(transport=overheard, trust_env=False)
        async with openai.AsyncOpenAI(
            base_url=self._pool.base_url, api_key=self._key or "none", max_retries=0, http_client=http_client
        ) as library:
            await library.post(self._url, content=b"{}", options=self._options, cast_to=httpx2.Response)
        request = overheard.request
        headers = [(name, value) for name, value in request.headers.raw if name.lower() != b"content-length"]
        head = h11.Request(method=request.method, target=request.url.raw_path, headers=headers)
        written = h11.Connection(h11.CLIENT).send(head)
        assert written is not None  # noqa: S101 - for the type checker
        return written.removesuffix(b"\r\n") + b"Content-Length: "

    def _body(
        self, messages: Messages, response_format: Mapping[str, Any], max_output_tokens: int, priority: int | None
    ) -> bytes:
        return to_json(
            {
                "model": self._pool.model,
                "messages": messages,
                "response_format": response_format,
                "max_tokens": max_output_tokens,
                "temperature": 0,
                "stream": True,
                "stream_options": {"include_usage": True},
                **({} if priority is None else {"priority": priority}),
            }
        )

    def _attempt(self, call: InFlight, reply: Reply, finding: Finding | None, parse: Parse, clean: Clean) -> Attempt:
        if reply.error is not None:
            finding = symptoms.of_error_object(reply.error, clean=clean)
        elif finding is None or reply.complete:  # what breaks after the answer's end does it no harm
            judged = verdict(reply, parse)
            if isinstance(judged, str):
                return self._seen(call, None, text=reply.text, label=judged)
            finding = judged
        return self._seen(call, finding, text=reply.text)

    def _seen(self, call: InFlight, finding: Finding | None, *, text: str = "", label: str | None = None) -> Attempt:
        return Attempt(
            started_at=call.started_at or self._now(),
            seconds=self._monotonic() - call.started if call.started_at else 0.0,
            pool=self._pool.name,
            model=self._pool.model,
            usage=call.usage or Usage(0, call.tokens),
            ttft_seconds=call.ttft_seconds,
            symptom=finding.symptom if finding else None,
            http_status=(finding.http_status if finding else None) or call.http_status,
            retry_after_seconds=finding.retry_after_seconds if finding else None,
            label=label,
            raw=storable(text[:RAW_CHARS]) or None,
            detail=finding.detail if finding else "",
        )

    def _timed_out(self, call: InFlight) -> Finding:
        seconds = f"{self._pool.request_timeout_seconds:g} s"
        if call.ttft_seconds is None:
            return Finding(Symptom.TIMED_OUT, f"no first token within {seconds}")
        return Finding(Symptom.TIMED_OUT, f"not done within {seconds}, {counted(call.tokens, 'token')} in")


def _tell(on_first_token: Callable[[], None], reply: Reply) -> None:
    if not reply.complete:
        on_first_token()


async def _refuse_what_is_no_stream(answer: Answer) -> None:
    """Raise _NoStream with the beginning of the body, whatever its size, for anything but a stream of events."""
    content_type = answer.headers.get("content-type", "").lower()
    if 200 <= answer.status < 300 and content_type.startswith("text/event-stream"):
        return
    body = bytearray()
    try:
        async for received in answer.content:
            body += received
            if len(body) >= ERROR_BODY_BYTES:
                break
    except httpx2.HTTPError:
        body.clear()  # the status speaks for itself
    raise _NoStream(answer, bytes(body[:ERROR_BODY_BYTES]))
