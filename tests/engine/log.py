"""What the engine was asked and what became of it: one row per request, written when it ends."""

import json
import os
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Self


@dataclass(slots=True)
class LogRow:
    """One request, as the engine saw it. Times are seconds since the Unix epoch.

    `outcome` is `ok`, `aborted` (its client went), `rejected` (an error answer that nobody scripted), or
    `fault:<kind>` where a scripted fault kept the right answer from the client. `fault` names the fault that it
    met, also where the answer was right in the end (a slow first token, missing usage).
    """

    number: int
    id: str
    klass: str
    priority: int
    stream: bool
    ticket: str  # hash of the ticket's text, see tests.engine.answer.ticket_hash
    prompt_tokens: int
    max_tokens: int | None
    arrived_at: float
    headers: dict[str, str] = field(default_factory=dict)
    text: str | None = None  # the ticket itself, only where the log is asked to keep it
    fault: str | None = None
    cached_tokens: int = 0
    output_tokens: int = 0
    started_at: float | None = None
    first_token_at: float | None = None
    ended_at: float | None = None
    status: int | None = None  # None: the client got no answer's head
    outcome: str = ""
    finish_reason: str | None = None
    label: str | None = None

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Self:
        return cls(**{name: value[name] for name in _NAMES})


_NAMES = tuple(item.name for item in fields(LogRow))


class RequestLog:
    """The rows in memory, and in a file that is appended to so that it outlives the process."""

    def __init__(self, path: Path | None = None) -> None:
        self.rows: list[LogRow] = []
        self._file = None if path is None else os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def add(self, row: LogRow) -> None:
        self.rows.append(row)
        if self._file is not None:
            os.write(self._file, encode(row))

    def clear(self) -> None:
        """Forget the rows in memory; the file keeps its own."""
        self.rows = []

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


def encode(row: LogRow) -> bytes:
    values = {name: getattr(row, name) for name in _NAMES}
    return json.dumps(values, separators=(",", ":")).encode() + b"\n"


def decode(lines: bytes) -> list[LogRow]:
    """The rows in a log file or in an answer of /control/log."""
    return [LogRow.from_json(json.loads(line)) for line in lines.splitlines()]
