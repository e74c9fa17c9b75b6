"""One call to the model: read from the request's body, then carried through the engine."""

import json
from dataclasses import dataclass
from typing import Any, Literal

from tests.engine.answer import (
    Answer,
    AnswerSettings,
    count_tokens,
    free_answer,
    labels_of,
    schema_answer,
    schema_of,
    ticket_of,
)
from tests.engine.faults import Fault
from tests.engine.http import Exchange, HttpRequest
from tests.engine.log import LogRow
from tests.engine.refusals import bad_request

Surface = Literal["chat", "completion"]
_KEPT_HEADERS = ("authorization", "user-agent")


@dataclass(slots=True)
class Prompt:
    """What a request asks for, checked."""

    surface: Surface
    model: str
    text: str
    ticket: str
    schema: dict[str, Any] | None
    max_tokens: int | None
    priority: int
    stream: bool
    include_usage: bool
    klass: str
    prompt_tokens: int

    def right_answer(self, settings: AnswerSettings) -> Answer:
        """What the engine says when nothing goes wrong."""
        if self.schema is None:
            return free_answer(self.max_tokens, settings)
        return schema_answer(self.schema, self.ticket, self.max_tokens or 1 << 20, settings)

    @property
    def labels(self) -> list[str]:
        return (labels_of(self.schema) if self.schema is not None else None) or []


@dataclass(slots=True)
class Call:
    """A prompt under way: what has been sent of its answer, and its row in the log."""

    prompt: Prompt
    answer: Answer
    fault: Fault | None
    exchange: Exchange
    row: LogRow
    created: int
    event_head: str
    said: int = 0  # characters of the answer sent so far
    dropped: bool = False  # a fault has cut its connection


def read_prompt(request: HttpRequest, surface: Surface, bytes_per_token: float) -> Prompt:
    """Check a request's body; a Refusal says what is wrong with it."""
    try:
        body = json.loads(request.body)
    except ValueError:
        raise bad_request("The request body is not JSON.") from None
    if not isinstance(body, dict) or not isinstance(body.get("model"), str):
        raise bad_request("The request body must be an object with a model.", "model")
    text, last = _chat_text(body) if surface == "chat" else _completion_text(body)
    max_tokens = body.get("max_completion_tokens", body.get("max_tokens"))
    if max_tokens is not None and (not isinstance(max_tokens, int) or max_tokens < 1):
        raise bad_request(f"max_tokens must be at least 1, got {max_tokens}.", "max_tokens")
    priority = body.get("priority", 0)
    if not isinstance(priority, int):
        raise bad_request("priority must be an integer.", "priority")
    if body.get("n", 1) != 1:
        raise bad_request("This engine gives one choice (n=1).", "n")
    schema = schema_of(body.get("response_format"))
    options = body.get("stream_options") or {}
    default_class = "interactive" if schema is None else "batch"
    return Prompt(
        surface=surface,
        model=body["model"],
        text=text,
        ticket=ticket_of(last),
        schema=dict(schema) if schema is not None else None,
        max_tokens=max_tokens,
        priority=priority,
        stream=bool(body.get("stream")),
        include_usage=bool(options.get("include_usage")),
        klass=request.headers.get("x-engine-class", default_class),
        prompt_tokens=max(1, count_tokens(text, bytes_per_token)),
    )


def kept_headers(headers: dict[str, str]) -> dict[str, str]:
    """The request's headers that belong in the log."""
    return {name: value for name, value in headers.items() if name in _KEPT_HEADERS or name.startswith("x-")}


def _chat_text(body: dict[str, Any]) -> tuple[str, str]:
    """The whole prompt, and the last user message in it."""
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise bad_request("messages must be a list with at least one message.", "messages")
    parts = []
    last = ""
    for message in messages:
        if not isinstance(message, dict):
            raise bad_request("a message must be an object.", "messages")
        content = _content_text(message.get("content"))
        parts.append(f"<|{message.get('role')}|>\n{content}\n")
        if message.get("role") == "user":
            last = content
    return "".join(parts), last


def _content_text(content: object) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    if content is None:
        return ""
    raise bad_request("a message's content must be text or a list of parts.", "messages")


def _completion_text(body: dict[str, Any]) -> tuple[str, str]:
    prompt = body.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1:
        prompt = prompt[0]
    if not isinstance(prompt, str):
        raise bad_request("prompt must be one text.", "prompt")
    return prompt, prompt
