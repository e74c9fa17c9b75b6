"""The demo's chat: people who ask a short question now and then, whether or not the last one has been answered."""

import json
import math
import random
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPResponse
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

ASSISTANT = (
    "We are the friendly support desk of a small online shop for tea, cups and books. Answer every customer in one or "
    "two short and polite sentences, and do not ask anything back."
)
QUESTIONS = (
    "Do you ship to Norway?",
    "Is the green tea organic?",
    "Can I pay by invoice?",
    "When do you open on Saturday?",
    "Which cup goes with the blue pot?",
    "Do you have gift cards?",
    "How long is the tea fresh?",
    "Can I change my order?",
)
OUTPUT_TOKENS = 12
ANSWER_SECONDS = 60.0  # nobody waits longer for the next word
TOO_MANY = 429

Messages = list[dict[str, str]]


@dataclass(frozen=True, slots=True)
class Answer:
    """What one person got: when the question was asked (monotonic seconds), and how long its first word and all took.

    `ttft_seconds` is None where there was no word: `is_refused` says that they were told to come again, else it failed.
    """

    asked_at: float
    ttft_seconds: float | None
    seconds: float
    is_refused: bool = False


class Chat:
    """Asks an OpenAI-compatible server from its entering to its leaving, in an open loop with streamed answers.

    The gaps are those of people who know nothing of each other, `every_seconds` on average; the same seed asks alike.
    Leaving it in good order waits for the answers under way.
    """

    def __init__(self, base_url: str, model: str, *, every_seconds: float, seed: int) -> None:
        self._base_url = base_url
        self._model = model
        self._every_seconds = every_seconds
        self._random = random.Random(seed)  # noqa: S311 - questions, not secrets
        self._answers: list[Answer] = []
        self._leaving = threading.Event()
        self._asking: list[threading.Thread] = []
        self._people = threading.Thread(target=self._come, name="chat", daemon=True)

    def __enter__(self) -> Self:
        self._people.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._leaving.set()
        self._people.join()
        for thread in self._asking if error is None else ():
            thread.join()

    def answers(self, since: float = 0.0, until: float = math.inf) -> list[Answer]:
        """What was asked between two moments (monotonic seconds) and is answered by now."""
        return [answer for answer in list(self._answers) if since <= answer.asked_at < until]

    def _come(self) -> None:
        due = time.monotonic()
        while not self._leaving.wait(max(0.0, due - time.monotonic())):
            thread = threading.Thread(target=self._ask, args=(self._random.choice(QUESTIONS),), daemon=True)
            self._asking = [*(other for other in self._asking if other.is_alive()), thread]
            thread.start()
            due += self._random.expovariate(1 / self._every_seconds)

    def _ask(self, question: str) -> None:
        self._answers.append(ask(self._base_url, self._model, messages_of(question)))


def messages_of(question: str) -> Messages:
    """The messages of somebody's question."""
    return [{"role": "system", "content": ASSISTANT}, {"role": "user", "content": question}]


def ask(base_url: str, model: str, messages: Messages) -> Answer:
    """One request, and its whole answer as it comes; whatever goes wrong is an answer without a word."""
    body = json.dumps({"model": model, "messages": messages, "max_tokens": OUTPUT_TOKENS, "stream": True}).encode()
    parts = urlsplit(base_url)
    connection = HTTPConnection(parts.hostname or "", parts.port or 80, timeout=ANSWER_SECONDS)
    asked_at = time.monotonic()
    first_at: float | None = None
    status = 0
    try:
        path = f"{parts.path.rstrip('/')}/chat/completions"
        connection.request("POST", path, body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        status = response.status
        for event in _events(response):
            if first_at is None and _has_text(event):
                first_at = time.monotonic()
    except (OSError, HTTPException, ValueError):
        pass  # what has come until then counts
    finally:
        connection.close()
    ttft_seconds = None if first_at is None else first_at - asked_at
    return Answer(asked_at, ttft_seconds, time.monotonic() - asked_at, is_refused=status == TOO_MANY)


def _events(response: HTTPResponse) -> Iterator[dict[str, Any]]:
    while line := response.readline():
        if line.startswith(b"data: {"):
            yield json.loads(line[len(b"data: ") :])


def _has_text(event: dict[str, Any]) -> bool:
    return any(choice.get("delta", {}).get("content") for choice in event.get("choices", ()))
