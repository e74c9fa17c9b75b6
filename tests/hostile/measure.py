"""Reads one huge file as a process of its own and prints its cost: `python -m tests.hostile.measure CASE FOLDER`."""

import gzip
import json
import resource
import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import repeat
from pathlib import Path
from typing import NamedTuple

from jobs.intake.source import open_source
from jobs.ticket import Ticket
from tests.support.intake import DAY
from tickets_batch.errors import UserError
from tickets_batch.settings import Source as SourceSettings

HEAD = b"id,subject,body\n"
MEGABYTE = 1_000_000


class Huge(NamedTuple):
    """The pieces of a file, and what reading it gives: so many tickets, so many rejections, or an error."""

    name: str
    pieces: Callable[[], Iterable[bytes]]
    tickets: int = 0
    rejections: int = 0
    error: str = ""


def around(before: bytes, piece: bytes, times: int, after: bytes) -> Callable[[], Iterator[bytes]]:
    def pieces() -> Iterator[bytes]:
        yield before
        yield from repeat(piece, times)
        yield after

    return pieces


A, LINES = b"a" * MEGABYTE, b"a\n" * 100_000
CASES = {
    "a body of 100 MB": Huge("x.csv", around(HEAD + b'1,s,"', A, 100, b'"\n2,s,b\n'), 1, 1),
    "a body of 100 MB in JSON": Huge("x.jsonl", around(b'{"id":1,"subject":"s","body":"', A, 100, b'"}\n'
                                     b'{"id":2,"subject":"s","body":"b"}'), 1, 1),
    "a body of a million lines": Huge("x.csv", around(HEAD + b'1,s,"', LINES, 10, b'"\n2,s,b\n'), 2),
    "a quote without end": Huge("x.csv", around(HEAD + b'1,s,"', b"\n" * 100_000, 50, b""), 0, 1),
    "a bomb of one line": Huge("x.csv.gz", around(HEAD + b"1,s,", A, 1000, b"\n2,s,b\n"), 1, 1),
    "a bomb of many rows": Huge("x.csv.gz", around(HEAD, b"1,s,b\n" * 1000, 300, b""), 300_000),
    "ten thousand columns": Huge("x.csv", around(HEAD[:-1] + b",x" * 10_000 + b"\n", b"1,s,b" + b"," * 10_000 + b"\n",
                                 300, b""), 300),
    "an object of lists": Huge("x.jsonl", around(b'{"id":1,"subject":"s","body":[', b"{}," * 100_000, 50, b"{}]}\n"
                               b'{"id":2,"subject":"s","body":"b"}'), 1, 1),
    "a page of lists": Huge("x.json", around(b'{"id":1,"subject":"s","description":[', b"{}," * 100_000, 200, b"{}]}"),
                            error="values in one object"),
    "a page without end": Huge("x.json", around(b'{"id":1,"subject":"s","description":"', A, 200, b""),
                               error="cannot be read"),
    "markup of 16 MB": Huge("x.csv", around(HEAD + b'1,s,"<p>', b"<div>" * 100_000, 30, b'</p>"\n2,s,b\n'), 2),
}  # fmt: skip


def peak_mb() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def main(name: str, folder: Path) -> None:
    case = CASES[name]
    path = folder / case.name
    with gzip.open(path, "wb", compresslevel=1) if path.suffix == ".gz" else path.open("wb") as file:
        for piece in case.pieces():
            file.write(piece)
    before = peak_mb()
    more = {"format": "zendesk"} if path.suffix == ".json" else {}
    tickets = rejections = 0
    error = ""
    try:
        for row in open_source(SourceSettings.model_validate({"path": str(path), **more}), DAY, every_row=True):
            if isinstance(row, Ticket):
                tickets += 1
            else:
                rejections += 1
    except UserError as refused:
        error = str(refused)
    said = {"tickets": tickets, "rejections": rejections, "error": error, "grew_mb": peak_mb() - before}
    print(json.dumps(said))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
