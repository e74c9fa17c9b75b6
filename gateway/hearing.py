"""Listening to an answer that passes by: its first token, and what the engine counted. Nothing is held back for it."""

import re

# A piece of text that is not empty, by any of the names that engines have for it, or a tool that is called.
_FIRST = re.compile(
    rb'"(?:content|text|reasoning|reasoning_content|refusal|arguments)"\s*:\s*"[^"]|"tool_calls"\s*:\s*\[\s*\{'
)
_PROMPT_TOKENS = re.compile(rb'"prompt_tokens"\s*:\s*(\d{1,9})\b')
TAIL_BYTES = 4096  # the usage stands at the end, in streams and elsewhere
OVERLAP_BYTES = 64  # what is looked for may be cut by the end of a chunk


class Hearing:
    """Hears the bytes of one answer as they come."""

    __slots__ = ("_tail", "has_begun")

    def __init__(self) -> None:
        self.has_begun = False
        self._tail = b""

    def hear(self, chunk: bytes) -> bool:
        """Take in the next bytes; True once: when the first text is in them."""
        begins = False
        if not self.has_begun:
            begins = self.has_begun = _FIRST.search(self._tail[-OVERLAP_BYTES:] + chunk) is not None
        self._tail = chunk[-TAIL_BYTES:] if len(chunk) >= TAIL_BYTES else (self._tail + chunk)[-TAIL_BYTES:]
        return begins

    def prompt_tokens(self) -> int | None:
        """What the engine counted, once the answer is over and where it has said so."""
        found = _PROMPT_TOKENS.findall(self._tail)
        return int(found[-1]) if found and int(found[-1]) > 0 else None
