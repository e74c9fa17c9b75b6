"""A chat or completion request as admission sees it, and its body with the output cap in it; pure."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self

from gateway.error import bad_request

# The names of the output cap; llama.cpp takes its own before the others.
CAPS = ("max_tokens", "max_completion_tokens", "n_predict")
MESSAGE_BYTES = 16  # role and separators of a message, in the template of the model
PART_BYTES = 4000  # a picture or a sound: about a thousand tokens, whatever its size as text
MOST_CHOICES = 128


@dataclass(frozen=True, slots=True)
class Prompt:
    """What is asked of the model.

    `size_bytes` stands for the text, `exact_tokens` for what came as tokens already; `is_text` says that nothing else
    is in it, so that the engine's count teaches how many bytes make a token. `output_tokens` is the cap of all answers.
    """

    model: str | None
    size_bytes: int
    exact_tokens: int
    is_text: bool
    output_tokens: int
    is_streamed: bool
    body: bytes

    @classmethod
    def read(cls, body: bytes, max_output_tokens: int) -> Self:
        """Raises Denied (400) for what is no such request; the body is rewritten only where its cap must change."""
        try:
            values = json.loads(str(body, "utf-8"), object_pairs_hook=_object, parse_constant=_no_json)
            if not isinstance(values, dict):
                raise bad_request("the body is not a JSON object")
            return cls._of(values, body, max_output_tokens)
        except (ValueError, RecursionError):
            raise bad_request("the body is not valid JSON") from None

    @classmethod
    def _of(cls, values: dict[str, Any], body: bytes, max_output_tokens: int) -> Self:
        cap, is_changed = _capped(values, max_output_tokens)
        weight = _Weight()
        weight.add_all(values)
        model = values.get("model")
        return cls(
            model=model if isinstance(model, str) else None,
            size_bytes=weight.size_bytes,
            exact_tokens=weight.tokens,
            is_text=weight.is_text,
            output_tokens=cap * _choices(values) * weight.prompts,
            is_streamed=values.get("stream") is True,
            # A number like 1e999 is one to us, and would become a word that is no JSON.
            body=json.dumps(values, separators=(",", ":"), allow_nan=False).encode() if is_changed else body,
        )


def weigh(messages: Iterable[Mapping[str, Any]]) -> int:
    """The bytes that stand for the text of chat messages. Raises Denied (400) where one is none."""
    weight = _Weight()
    weight.add_messages(messages)
    return weight.size_bytes


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object none of whose keys stands twice: the engine might take the other one, with another cap."""
    values = dict(pairs)
    if len(values) != len(pairs):
        raise bad_request("a key stands twice in an object of the body")
    return values


def _no_json(constant: str) -> None:
    raise ValueError(constant)  # NaN and Infinity


def _capped(values: dict[str, Any], most: int) -> tuple[int, bool]:
    """Put the cap into the values where it is absent or higher; the cap, and whether that changed anything."""
    caps = {}
    for name in CAPS:
        value = values.get(name)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise bad_request(f"{name} must be a whole number")
        caps[name] = value
    if not caps:
        values["max_tokens"] = most
        return most, True
    over = [name for name, value in caps.items() if not 0 <= value <= most]  # -1 is llama.cpp's word for no end
    for name in over:
        values[name] = caps[name] = most
    return max(1, int(max(caps.values()))), bool(over)


def _choices(values: Mapping[str, Any]) -> int:
    """How many answers are made of one prompt."""
    counts = [(name, values[name]) for name in ("n", "best_of") if values.get(name) is not None]
    for name, count in counts:
        if isinstance(count, bool) or not isinstance(count, int | float) or count != count // 1:
            raise bad_request(f"{name} must be a whole number")
    most = int(max((count for _, count in counts), default=1))
    if most > MOST_CHOICES:
        raise bad_request(f"n must be at most {MOST_CHOICES}")
    return max(1, most)


class _Weight:
    """Adds up what the engine must read."""

    def __init__(self) -> None:
        self.size_bytes = 0
        self.tokens = 0
        self.prompts = 1
        self.is_text = True

    def add_all(self, values: Mapping[str, Any]) -> None:
        messages = values.get("messages")
        self.add_messages(messages if isinstance(messages, list) else ())
        if "prompt" in values:
            self._add_prompt(values["prompt"])
        if tools := values.get("tools") or values.get("functions"):
            self.size_bytes += len(json.dumps(tools))

    def add_messages(self, messages: Iterable[object]) -> None:
        for message in messages:
            self._add_message(message)

    def _add_message(self, message: object) -> None:
        if not isinstance(message, dict):
            raise bad_request("every message must be an object")
        self.size_bytes += MESSAGE_BYTES
        content = message.get("content")
        for part in content if isinstance(content, list) else (content,):
            self._add_part(part)
        if calls := message.get("tool_calls"):
            self.size_bytes += len(json.dumps(calls))

    def _add_part(self, part: object) -> None:
        text = part.get("text") if isinstance(part, dict) else part
        if isinstance(text, str):
            self.size_bytes += _size(text)
        elif part is not None:
            self.size_bytes += PART_BYTES
            self.is_text = False

    def _add_prompt(self, prompt: object) -> None:
        """A text, a list of tokens, or a list of several of either."""
        prompts = prompt if isinstance(prompt, list) and prompt and not isinstance(prompt[0], int) else [prompt]
        self.prompts = len(prompts)
        self.is_text = self.prompts == 1
        for one in prompts:
            if isinstance(one, list):
                self.tokens += len(one)
                self.is_text = False
            elif isinstance(one, str):
                self.size_bytes += _size(one)


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
