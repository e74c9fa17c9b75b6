"""A recorded stream of chat requests: a CSV file with the columns TIMESTAMP, ContextTokens and GeneratedTokens."""

import csv
import math
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

from scheduler.simulation.shapes import Arrival

COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")


class TraceUnreadable(ValueError):
    """A trace that cannot be read; the message says where and what was expected."""


@dataclass(frozen=True, slots=True)
class Trace:
    """Requests in the order of their arrival, in seconds from the first, and the `seconds` from first to last."""

    arrivals: Sequence[Arrival]
    seconds: float

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read the file; timestamps are ISO 8601, UTC where they have no zone. Raises OSError and TraceUnreadable."""
        try:
            with path.open(encoding="utf-8-sig", newline="") as file:
                rows = csv.DictReader(file)
                missing = [column for column in COLUMNS if column not in (rows.fieldnames or ())]
                if missing:
                    raise TraceUnreadable(f"{path} has no column {missing[0]}; it needs {', '.join(COLUMNS)}")
                found = sorted(_arrivals(rows, path))
        except (UnicodeDecodeError, csv.Error) as error:
            raise TraceUnreadable(f"{path} is no CSV file in UTF-8: {error}") from None
        if len(found) < 2 or found[0].at == found[-1].at:
            raise TraceUnreadable(f"{path} has no two requests at different times")
        begin = found[0].at
        return cls(tuple(arrival._replace(at=arrival.at - begin) for arrival in found), found[-1].at - begin)

    def lap(self, offset: float, seconds: float, share: float, rng: random.Random) -> list[Arrival]:
        """`seconds` of it from `offset` on, over and over where it is shorter, of each request a chance of `share`."""
        arrivals = []
        for lap in range(math.ceil(seconds / self.seconds) + 1):
            moved = lap * self.seconds - offset
            arrivals += [
                Arrival(row.at + moved, row.prompt_tokens, row.output_tokens)
                for row in self.arrivals
                if rng.random() < share and 0 <= row.at + moved < seconds
            ]
        return arrivals


def _arrivals(rows: Iterable[dict[str, str]], path: Path) -> Iterable[Arrival]:
    for number, row in enumerate(rows, 2):
        try:
            yield Arrival(_seconds(row["TIMESTAMP"]), *(max(1, int(row[column])) for column in COLUMNS[1:]))
        except (AttributeError, TypeError, ValueError) as error:  # a short row has None for its last columns
            raise TraceUnreadable(f"{path} line {number}: {error}") from None


def _seconds(stamp: str) -> float:
    instant = datetime.fromisoformat(stamp.strip())
    return (instant if instant.tzinfo else instant.replace(tzinfo=UTC)).timestamp()
