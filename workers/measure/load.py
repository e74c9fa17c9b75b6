"""So many tickets in flight at a time, each followed by the next; on one event loop."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count

from jobs.outcomes import Attempt, Symptom
from scheduler.estimate import BYTES_PER_TOKEN
from workers.client import ModelClient
from workers.measure.ours import Ours
from workers.measure.texts import Texts

REST_SECONDS = 0.2  # of a lane whose request came to nothing

ANSWERED = frozenset({None, Symptom.INVALID_OUTPUT})
HOPELESS = frozenset({Symptom.BLOCKED, Symptom.UNREACHABLE})
NO_ROOM = frozenset({Symptom.OVERLOADED, Symptom.TIMED_OUT, Symptom.DISCONNECTED, Symptom.SERVER_ERROR})


@dataclass(frozen=True, slots=True)
class Answered:
    """A ticket that the model answered; `seconds` is what it cost its lane, from the end of the one before."""

    began: float
    seconds: float
    attempt: Attempt
    prompt_bytes: int

    @property
    def is_counted(self) -> bool:
        """Whether the engine counted the prompt's tokens."""
        return self.attempt.usage.prompt_tokens > 0

    @property
    def prompt_tokens(self) -> int:
        """As the engine counted them, else the usual number for so many bytes."""
        return self.attempt.usage.prompt_tokens or max(1, round(self.prompt_bytes / BYTES_PER_TOKEN))


class TicketLoad:
    """Keeps tickets in flight. `answered` and `no_room` count up and are cleared by whoever reads them.

    `no_room` counts requests that the engine turned away or let go; `hopeless` is one after which none can succeed.
    Tickets that the engine refuses for what they are do not count at all; `unusable` is the last of them.
    """

    def __init__(
        self, client: ModelClient, texts: Texts, ours: Ours, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self.answered: list[Answered] = []
        self.no_room: list[Attempt] = []
        self.hopeless: Attempt | None = None
        self.unusable: Attempt | None = None
        self._client = client
        self._texts = texts
        self._ours = ours
        self._monotonic = monotonic
        self._numbers = count()
        self._wanted = 0
        self._lanes: dict[int, asyncio.Task[None]] = {}

    def set(self, in_flight: int, over_seconds: float = 0.0) -> None:
        """Have so many in flight; new ones begin spread over some seconds, or they would keep step with each other.

        Fewer: the tickets over it are still answered.
        """
        self._wanted = in_flight
        missing = [lane for lane in range(in_flight) if lane not in self._lanes or self._lanes[lane].done()]
        for place, lane in enumerate(missing):
            wait_seconds = over_seconds * place / len(missing)
            self._lanes[lane] = asyncio.create_task(self._work(lane, wait_seconds), name=f"lane {lane}")

    async def withdraw(self) -> None:
        """Close every request now, so that the engine stops; returns when all connections are closed."""
        self._wanted = 0
        for task in self._lanes.values():
            task.cancel()
        await asyncio.gather(*self._lanes.values(), return_exceptions=True)
        self._lanes.clear()

    def clear(self) -> None:
        """Forget what was answered so far."""
        self.answered.clear()
        self.no_room.clear()

    async def _work(self, lane: int, wait_seconds: float) -> None:
        await asyncio.sleep(wait_seconds)
        texts = self._texts
        response_format, parse, cap = texts.response_format, texts.parse, texts.spec.max_output_tokens
        while lane < self._wanted:
            began = self._monotonic()
            messages = texts.messages(next(self._numbers))
            with self._ours.one():
                attempt = await self._client.classify(messages, response_format, cap, parse=parse)
            size = sum(len(message["content"].encode()) for message in messages)
            self._take(Answered(began, self._monotonic() - began, attempt, size))
            if attempt.symptom not in ANSWERED:
                await asyncio.sleep(REST_SECONDS)

    def _take(self, one: Answered) -> None:
        symptom = one.attempt.symptom
        if symptom in ANSWERED:
            self.answered.append(one)
        elif symptom in HOPELESS:
            self.hopeless = one.attempt
        elif symptom in NO_ROOM:
            self.no_room.append(one.attempt)
        else:
            self.unusable = one.attempt
