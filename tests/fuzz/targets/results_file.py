"""Results of any words, written and read back: the same, but for an apostrophe where a spreadsheet would run a cell."""

import csv
import io
import json
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from jobs.export import COLUMNS, write_results
from jobs.text import storable
from tests.fuzz.target import Target
from tests.hostile.texts import TEXTS

RUN = tuple("=+-@\t\r\n\uff1d\uff0b\uff0d\uff20")
CELL_END = "\x1f"


@dataclass
class Row:
    """A result with words of others in each place that has any."""

    custom_id: str
    label: str | None
    error: str | None
    model: str | None
    state: str = "succeeded"
    truncated: bool = False
    reused: bool = True
    prompt_tokens: int | None = -7
    completion_tokens: int | None = 0
    latency_seconds: float | None = 0.25
    attempts: int = 1
    yields: int = 0
    finished_at: datetime | None = datetime(2026, 11, 30, 2, 3, 4, 567_000, tzinfo=UTC)


def judge(data: bytes, folder: Path) -> None:
    words = [storable(word).strip() for word in data.decode("utf-8", "replace").split(CELL_END)]
    rows = [
        Row(*(cell or None if place else cell for place, cell in enumerate(words[start : start + 4])))  # type: ignore[arg-type]
        for start in range(0, len(words) - 3, 4)
    ]
    read_as_json(rows)
    read_as_csv(rows, folder / "results.csv")


def read_as_json(rows: list[Row]) -> None:
    out = io.StringIO()
    assert write_results(rows, "jsonl", out) == len(rows)
    lines = out.getvalue().split("\n")
    assert lines.pop() == ""
    for line, row in zip(map(json.loads, lines), rows, strict=True):
        assert tuple(line) == COLUMNS
        assert [line["custom_id"], line["label"], line["error"]] == [row.custom_id, row.label, row.error]


def read_as_csv(rows: list[Row], path: Path) -> None:
    assert write_results(rows, "csv", path) == len(rows)
    text = path.read_bytes().decode()
    head, *table = csv.reader(io.StringIO(text, newline=""), strict=True)
    assert tuple(head) == COLUMNS
    for cells, row in zip(table, rows, strict=True):
        for name, cell in zip(head, cells, strict=True):
            value = getattr(row, name)
            if isinstance(value, str) or value is None:
                assert not cell.strip().startswith(RUN), cell
                assert without_guards(cell, value or "")
    for separator in ";\t":  # as a spreadsheet of another country splits it
        lines = csv.reader(io.StringIO(text, newline=""), delimiter=separator)
        for cell in (cell for line in lines for cell in line):
            assert not cell.startswith(RUN), cell


def without_guards(cell: str, value: str) -> bool:
    """Whether apostrophes are all that was put in."""
    rest = iter(cell)
    return all(letter in rest for letter in value) and cell.count("'") - value.count("'") == len(cell) - len(value)


TARGET = Target(
    judge,
    seeds=(
        b"1\x1fbilling\x1f\x1fm",
        b"=1+1\x1fa;=1\x1f\t@x\x1f-1",
        b'"=1"\x1f\n=1\x1f; "=1"\x1f\r',
        "\uff1d1\x1fa\u2028=\x1f\x85+\x1f, -1".encode(),
        *(b"1\x1fb\x1f%s\x1fm" % text.written.encode("utf-8", "replace") for text in TEXTS if len(text.written) < 100),
    ),
    words=(CELL_END, "=", "+", "-", "@", ";", "\t", '"', "'", "\n", "\r", " ", "\uff1d", "\xa0", "\u2028", ","),
    most_bytes=256,
)  # fmt: skip
