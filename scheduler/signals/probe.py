"""A request of one token now and then, where nothing else sees the chat: what it waits, the chat would wait too."""

import asyncio
import json
import math
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx2

from scheduler.signals.combine import Report
from scheduler.signals.fetch import SignalUnavailable, in_words, plain_client
from scheduler.signals.poll import STALE_SECONDS, Poll
from tickets_batch.settings import Pool, ProbeSignal

LONGEST_SECONDS = 10.0
ANSWER_BYTES = 64 * 1024


class Probe:
    """Measures time to first token. It names no priority, so that it stands in line where the chat does, and it holds
    no permit. `waiting_since` is when the one under way was sent (monotonic seconds), None while none waits.

    `first_tokens` and `late` count those that came and those that took longer than the pool's target. Raises
    SettingsError when the pool's key is missing.
    """

    def __init__(self, pool: Pool, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.waiting_since: float | None = None
        self.first_tokens = self.late = 0
        self._ended_at = -math.inf
        self._target_seconds = pool.ttft_target_seconds
        self._url = pool.base_url.rstrip("/") + "/chat/completions"
        self._monotonic = monotonic
        self._client = plain_client(self._url, LONGEST_SECONDS)
        self._headers = {"Authorization": f"Bearer {pool.api_key.reveal()}"} if pool.api_key else {}
        self._body = {
            "model": pool.model,
            "messages": [{"role": "user", "content": "Hello"}],
            "max_tokens": 1,
            "temperature": 0,
            "stream": True,
        }

    async def ask(self) -> float:
        """Seconds until the first token. Raises SignalUnavailable where none comes in time."""
        self.waiting_since = asked = self._monotonic()
        try:
            async with (
                asyncio.timeout(LONGEST_SECONDS),
                self._client.stream("POST", self._url, json=self._body, headers=self._headers) as response,
            ):
                await self._first_token(response)
                seconds = self._monotonic() - asked
        except (TimeoutError, httpx2.TimeoutException) as error:
            raise SignalUnavailable(f"{self._url} gives a probe no token within {LONGEST_SECONDS:g} s") from error
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
            raise SignalUnavailable(f"{self._url} cannot be probed: {in_words(error)}") from error
        finally:
            self.waiting_since, self._ended_at = None, self._monotonic()
        self.first_tokens += 1
        self.late += seconds > self._target_seconds
        return seconds

    def was_under_way(self, since: float) -> bool:
        """True where a probe may have been in the engine after that moment (monotonic seconds)."""
        return self.waiting_since is not None or self._ended_at >= since

    async def aclose(self) -> None:
        """Close what is open."""
        await self._client.aclose()

    async def _first_token(self, response: httpx2.Response) -> None:
        if response.status_code != httpx2.codes.OK:
            raise SignalUnavailable(f"{self._url} answers a probe with {response.status_code}")
        async for event in _events(response):
            if _begins(event):
                return
        raise SignalUnavailable(f"{self._url} gives a probe no token")


class ProbeSource:
    """One probe, asked every so many seconds; fresh until the one after is overdue."""

    def __init__(self, name: str, signal: ProbeSignal, pool: Pool, monotonic: Callable[[], float]) -> None:
        self.probe = Probe(pool, monotonic)
        self.poll: Poll[float] = Poll(
            name,
            pool.name,
            self.probe.ask,
            period_seconds=signal.every_seconds,
            stale_seconds=signal.every_seconds + STALE_SECONDS,
            monotonic=monotonic,
        )
        self._told: object = None

    async def aclose(self) -> None:
        await self.probe.aclose()

    def report(self, now: float) -> Report:
        """Its time to first token once, and how long one under way has waited: the chat would wait as long."""
        answer = self.poll.fresh
        is_new, self._told = answer is not self._told, answer
        since = self.probe.waiting_since
        return Report(
            (self.poll.age,),
            oldest_waiting_seconds=max(0.0, now - since) if since is not None else 0.0,
            ttfts_seconds=(answer.value,) if answer is not None and is_new else (),
        )


async def _events(response: httpx2.Response) -> AsyncIterator[str]:
    """The data of each event that came whole, until there is more than a probe can be answered with."""
    received = bytearray()
    seen = 0
    async for part in response.aiter_bytes():
        received += part
        seen += len(part)
        *lines, rest = bytes(received).split(b"\n")
        received = bytearray(rest)
        for line in lines:
            if line.startswith(b"data:"):
                yield line[5:].decode("utf-8", "replace").strip()
        if seen > ANSWER_BYTES:
            return


def _begins(event: str) -> bool:
    """True where an event shows that the engine has made a token: text, of whatever kind, or the end of the answer."""
    try:
        return any(_has_text(choice) for choice in json.loads(event)["choices"])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return False


def _has_text(choice: dict[str, Any]) -> bool:
    delta = choice.get("delta") or {}
    said = any(delta.get(key) for key in ("content", "reasoning", "reasoning_content"))
    return bool(said or choice.get("finish_reason"))
