"""What the engine says, decided by the ticket alone, so that a test can work it out without asking.

A ticket is what the last user message fences (between lines of backticks, or in a `<ticket>` element), or the whole
message. Differences of white space and of letters' composition do not count.
"""

import hashlib
import json
import math
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import Any

_FENCES = (
    re.compile(r"<ticket\b[^>]*>(.*)</ticket", re.DOTALL | re.IGNORECASE),
    re.compile(r"^(?P<fence>`{3,}|~{3,})[^\n]*\n(?P<inside>.*)^(?P=fence)", re.DOTALL | re.MULTILINE),
)
_FILLER = "the engine goes on to say what an engine says when it is asked for so many words "


def count_tokens(text: str, bytes_per_token: float = 4.0) -> int:
    """Tokens of a text: its UTF-8 bytes divided by `bytes_per_token`, rounded up."""
    return math.ceil(len(text.encode("utf-8", "surrogatepass")) / bytes_per_token)


def ticket_of(message: str) -> str:
    """The ticket inside a user message."""
    for fence in _FENCES:
        found = fence.search(message)
        if found:
            return found["inside"] if "inside" in found.groupdict() else found[1]
    return message


def normalized(text: str) -> str:
    return " ".join(unicodedata.normalize("NFC", text).split())


def ticket_hash(text: str) -> str:
    """16 hex digits that stand for a ticket's text, the same in the log and in a test."""
    return hashlib.sha256(normalized(text).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def expected_label(text: str, labels: Sequence[str]) -> str:
    """The label that the engine gives this ticket, whatever the order of the labels."""
    choices = sorted(set(labels))
    if not choices:
        raise ValueError("no labels to choose from")
    return choices[int(ticket_hash(text), 16) % len(choices)]


def label_answer(label: str) -> str:
    """The JSON text that a right answer consists of."""
    return json.dumps({"label": label}, ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class AnswerSettings:
    """How long answers are, and which.

    A schema's answer takes `answer_tokens` tokens (None: as many as its text has), spread lognormally with
    `answer_sigma` by the ticket's hash; free text takes `chat_tokens` (None: the request's cap, or 64 without one).
    `oracle` maps ticket text to label; what it does not name gets `expected_label`.
    """

    answer_tokens: int | None = None
    answer_sigma: float = 0.0
    chat_tokens: int | None = None
    bytes_per_token: float = 4.0
    oracle: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        known = {normalized(text): label for text, label in self.oracle.items()}
        object.__setattr__(self, "oracle", known)


@dataclass(frozen=True, slots=True)
class Answer:
    """A text and the number of tokens it takes; `reasoning` is sent in its own field, before the text."""

    text: str
    tokens: int
    finish_reason: str = "stop"
    label: str | None = None
    reasoning: str | None = None

    def text_until(self, token: int) -> int:
        """How many characters of the text have been said by the end of that token (from 1)."""
        return -(-len(self.text) * min(token, self.tokens) // self.tokens)


def schema_of(response_format: object) -> Mapping[str, Any] | None:
    """The JSON schema that an answer must follow, or None for free text."""
    if not isinstance(response_format, Mapping) or response_format.get("type") != "json_schema":
        return None
    wrapper = response_format.get("json_schema")
    schema = wrapper.get("schema") if isinstance(wrapper, Mapping) else None
    return schema if isinstance(schema, Mapping) else None


def labels_of(schema: Mapping[str, Any]) -> list[str] | None:
    """The values allowed for the property `label`."""
    properties = schema.get("properties")
    label = properties.get("label") if isinstance(properties, Mapping) else None
    values = label.get("enum") if isinstance(label, Mapping) else None
    return [str(value) for value in values] if isinstance(values, list) and values else None


def schema_answer(schema: Mapping[str, Any], ticket: str, max_tokens: int, settings: AnswerSettings) -> Answer:
    """The right answer to a ticket under a schema; a cap below its length cuts it off."""
    labels = labels_of(schema)
    label = None
    if labels is None:
        text = json.dumps(_fill(schema, ticket), ensure_ascii=False)
    else:
        label = settings.oracle.get(normalized(ticket)) or expected_label(ticket, labels)
        text = label_answer(label)
    needed = count_tokens(text, settings.bytes_per_token)
    if settings.answer_tokens is not None:
        # Cap-bound like any generation, but the text itself arrives whole: the rest stands for longer answers.
        wanted = settings.answer_tokens * math.exp(settings.answer_sigma * _normal(ticket))
        return Answer(text, max(1, min(round(wanted), max_tokens)), label=label)
    if needed > max_tokens:
        kept = max(1, len(text) * max_tokens // needed)
        return Answer(text[:kept], max_tokens, "length")
    return Answer(text, needed, label=label)


def free_answer(max_tokens: int | None, settings: AnswerSettings) -> Answer:
    """What the engine says to a chat message: filler of the length that was asked for."""
    tokens = settings.chat_tokens or max_tokens or 64
    reason = "stop"
    if max_tokens is not None and tokens >= max_tokens:
        tokens, reason = max_tokens, "length"
    length = max(1, int(tokens * settings.bytes_per_token))
    return Answer((_FILLER * (length // len(_FILLER) + 1))[:length], tokens, reason)


def _fill(schema: Mapping[str, Any], ticket: str) -> Any:
    if isinstance(schema.get("enum"), list):
        return sorted(schema["enum"], key=str)[int(ticket_hash(ticket), 16) % len(schema["enum"])]
    match schema.get("type"):
        case "object":
            properties = schema.get("properties")
            return {name: _fill(value, ticket) for name, value in (properties or {}).items()}
        case "array":
            return []
        case "integer" | "number":
            return 0
        case "boolean":
            return True
        case _:
            return "text"


def _normal(ticket: str) -> float:
    """A standard normal deviate that belongs to the ticket."""
    uniform = (int(ticket_hash(ticket), 16) + 0.5) / 2**64
    return NormalDist().inv_cdf(uniform)
