"""An answer as it comes in, chunk by chunk."""

from typing import Any

from pydantic_core import from_json

from jobs.outcomes import Usage
from tickets_batch.words import counted

ANSWER_CHARS = 64 * 1024
MOST_TOKENS = 2**31 - 1
WHITE_SPACE_CHARS = 100  # in a row: constrained decoding has run away


class UnreadableChunk(Exception):
    """An event's data is not the object that a chunk should be."""


class Reply:
    """What the chunks of one stream have said so far."""

    __slots__ = (
        "_blank",
        "_chars",
        "_parts",
        "done",
        "error",
        "finish_reason",
        "reasoned",
        "refused",
        "tokens",
        "usage",
    )

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._chars = 0
        self._blank = 0  # white space at the end of what was said, in characters
        self.tokens = 0  # chunks with text or reasoning: at least so many tokens were made
        self.usage: Usage | None = None
        self.finish_reason: str | None = None
        self.reasoned = False
        self.refused = False
        self.error: object = None
        self.done = False

    @property
    def text(self) -> str:
        """The answer so far."""
        return "".join(self._parts)

    @property
    def complete(self) -> bool:
        """Whether the model has said all it will; what may still follow is the usage."""
        return self.done or self.finish_reason is not None

    @property
    def runaway(self) -> str | None:
        """Why reading on is useless, None while it is not."""
        if self._blank > WHITE_SPACE_CHARS:
            return f"endless white space, cut after {counted(self.tokens, 'token')}"
        if self._chars > ANSWER_CHARS:
            return f"longer than {ANSWER_CHARS} characters, cut after {counted(self.tokens, 'token')}"
        return None

    def take(self, data: bytes) -> None:
        """Read the data of one event. Raises UnreadableChunk."""
        if data == b"[DONE]":
            self.done = True
            return
        try:
            chunk = from_json(data)
        except ValueError:
            raise UnreadableChunk from None
        if not isinstance(chunk, dict):
            raise UnreadableChunk
        if chunk.get("error") or chunk.get("object") == "error":
            self.error = chunk.get("error") or chunk
            return
        usage = chunk.get("usage")
        if isinstance(usage, dict):
            self.usage = Usage(_count(usage.get("prompt_tokens")), _count(usage.get("completion_tokens")))
        choices = chunk.get("choices")
        if isinstance(choices, list) and choices and isinstance(choices[0], dict):
            self._take_choice(choices[0])

    def _take_choice(self, choice: dict[str, Any]) -> None:
        reason = choice.get("finish_reason")
        if isinstance(reason, str):
            self.finish_reason = reason
        delta = choice.get("delta")
        if not isinstance(delta, dict):
            return
        if delta.get("refusal"):
            self.refused = True
        content = delta.get("content")
        if isinstance(content, str) and content:
            self.tokens += 1
            self._say(content)
        elif delta.get("reasoning_content") or delta.get("reasoning"):
            self.tokens += 1
            self.reasoned = True

    def _say(self, content: str) -> None:
        self._parts.append(content)
        self._chars += len(content)
        stripped = content.rstrip()
        self._blank = len(content) - len(stripped) + (0 if stripped else self._blank)


def _count(value: object) -> int:
    """A number of tokens as far as it can be one; beyond, the engine has not said."""
    return value if isinstance(value, int) and 0 < value <= MOST_TOKENS else 0
