"""People who chat while a test goes on: an open loop of streamed requests, and what each of them felt."""

import asyncio
import json
import random
import re
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from types import TracebackType
from typing import Self

import httpx2

from scheduler.simulation.shapes import Arrival
from tests.support.wait import wait_until

PATIENCE_SECONDS = 30.0  # for a whole answer: whoever waits longer hangs
TOO_MANY = 429
NUMBER = "x-number"
_TEXT = re.compile(rb'"content":"[^"]')
_MARKS_TOKENS = 3  # of the message's role, as the test engine counts them


class Outcome(StrEnum):
    """What became of a chat request."""

    ANSWERED = "answered"
    REFUSED = "refused"  # 429, with a Retry-After
    FAILED = "failed"  # an error, an answer cut short, or no connection
    HUNG = "hung"  # nothing more came for as long as anybody waits


@dataclass(frozen=True, slots=True)
class Felt:
    """One chat request, in seconds since the Unix epoch. `ttft_seconds` is from the moment when it was due.

    Its `number` is what the engine's log knows it by, in the header NUMBER.
    """

    number: int
    due_at: float
    sent_at: float
    ended_at: float
    outcome: Outcome
    ttft_seconds: float | None = None
    detail: str = ""


def steady(per_second: float, *, prompt_tokens: int = 200, output_tokens: int = 60, seed: int = 1) -> Iterator[Arrival]:
    """Requests without end, of people who know nothing of each other."""
    rng, at = random.Random(seed), 0.0
    while True:
        at += rng.expovariate(per_second)
        yield Arrival(at, prompt_tokens, output_tokens)


class Chat:
    """Sends its arrivals to a server from its entering on, each when it is due, whatever has been answered.

    `address` is the server's without /v1. Runs on a thread of its own. Leaving it sends nothing more and waits for what
    is under way.
    """

    def __init__(
        self, address: str, arrivals: Iterable[Arrival], *, patience_seconds: float = PATIENCE_SECONDS
    ) -> None:
        self._url = f"{address}/v1/chat/completions"
        self._arrivals = arrivals
        self._patience_seconds = patience_seconds
        self._felt: list[Felt] = []
        self._under_way: set[asyncio.Task[None]] = set()
        self._has_sent_all = False
        self._began = threading.Event()
        self._loop: asyncio.AbstractEventLoop
        self._leaving: asyncio.Event
        self.began_at = 0.0  # seconds since the Unix epoch
        self._thread = threading.Thread(target=lambda: asyncio.run(self._come()), name="chat", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._began.wait()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.leave()

    def leave(self) -> None:
        """Send nothing more, and wait for what is under way."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._leaving.set)
            self._thread.join()

    @property
    def felt(self) -> list[Felt]:
        """Those that are over, in that order."""
        return list(self._felt)

    @property
    def under_way(self) -> int:
        """Requests that are not over yet."""
        return len(self._under_way)

    def wait(self, timeout_seconds: float) -> list[Felt]:
        """Wait until all arrivals were sent and are over; what was felt."""
        wait_until(lambda: self._has_sent_all and not self._under_way, "the chat to end", timeout_seconds, 0.1)
        return self.felt

    async def _come(self) -> None:
        self._loop, self._leaving = asyncio.get_running_loop(), asyncio.Event()
        async with httpx2.AsyncHTTPTransport(verify=False, limits=httpx2.Limits(keepalive_expiry=3.0)) as transport:
            self.began_at = time.time()
            self._began.set()
            for number, arrival in enumerate(self._arrivals):
                due_at = self.began_at + arrival.at
                if await self._leaves_within(due_at - time.time()):
                    break
                task = asyncio.create_task(self._ask(transport, number, arrival, due_at))
                self._under_way.add(task)
                task.add_done_callback(self._under_way.discard)
            self._has_sent_all = True
            await self._leaving.wait()
            await asyncio.gather(*self._under_way)

    async def _leaves_within(self, seconds: float) -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, seconds)):
                await self._leaving.wait()
        return self._leaving.is_set()

    async def _ask(self, transport: httpx2.AsyncHTTPTransport, number: int, arrival: Arrival, due_at: float) -> None:
        sent_at, first_at = time.time(), None
        outcome, detail = Outcome.ANSWERED, ""
        timeout = {"connect": 5.0, "read": self._patience_seconds, "write": 5.0, "pool": 5.0}
        request = httpx2.Request(
            "POST",
            self._url,
            content=_body(arrival),
            headers={"content-type": "application/json", NUMBER: str(number)},
            extensions={"timeout": timeout},
        )
        try:
            async with asyncio.timeout(self._patience_seconds):
                response = await transport.handle_async_request(request)
                assert isinstance(response.stream, httpx2.AsyncByteStream)
                tail = b""
                try:
                    async for chunk in response.stream:
                        tail = (tail + chunk)[-2000:]
                        if first_at is None and _TEXT.search(tail):
                            first_at = time.time()
                finally:
                    await response.aclose()
            if response.status_code == TOO_MANY and "retry-after" in response.headers:
                outcome = Outcome.REFUSED
            elif response.status_code != 200 or b"data: [DONE]" not in tail:
                outcome, detail = Outcome.FAILED, f"{response.status_code}: {tail[-200:]!r}"
        except TimeoutError:
            outcome, detail = Outcome.HUNG, f"no end within {self._patience_seconds:g} s"
        except (httpx2.TransportError, OSError) as error:
            outcome, detail = Outcome.FAILED, repr(error)
        ttft_seconds = None if first_at is None else first_at - due_at
        self._felt.append(Felt(number, due_at, sent_at, time.time(), outcome, ttft_seconds, detail))


def outcomes(felt: Iterable[Felt]) -> Counter[Outcome]:
    """How many had which outcome."""
    return Counter(each.outcome for each in felt)


def ttft_quantiles(felt: Iterable[Felt], shares: Sequence[float] = (0.50, 0.95, 0.99)) -> list[float]:
    """Seconds to the first token, by the same rule as in virtual time."""
    ordered = sorted(each.ttft_seconds for each in felt if each.ttft_seconds is not None)
    return [ordered[min(len(ordered) - 1, int(share * len(ordered)))] for share in shares]


def _body(arrival: Arrival) -> bytes:
    """A request that the test engine counts as so many tokens, and answers with so many."""
    text = "What about my parcel? " * (arrival.prompt_tokens * 4 // 22 + 1)
    content = text[: 4 * max(1, arrival.prompt_tokens - _MARKS_TOKENS)]
    return json.dumps(
        {
            "model": "test-model",
            "messages": [{"role": "user", "content": content}],
            "max_tokens": arrival.output_tokens,
            "stream": True,
        }
    ).encode()
