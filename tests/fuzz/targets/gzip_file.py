"""A gzip file, whole, damaged or nothing of the kind: what is in it as from a plain file, or one line."""

import gzip
import zlib
from pathlib import Path

from tests.fuzz.target import Target
from tests.fuzz.tickets import rows_of, texts_of

PLAIN = b"id,subject,body\n" + b"".join(b"%d,s,b%d\n" % (number, number * 7919) for number in range(40))
PACKED = gzip.compress(PLAIN, 9, mtime=0)


def judge(data: bytes, folder: Path) -> None:
    """The first byte says what is done to a good file, the next two say where, the rest is what is put there."""
    packed = damaged(data)
    rows = rows_of(folder / "tickets.csv.gz", packed)
    try:
        plain = gzip.decompress(packed)
    except (OSError, EOFError, zlib.error):
        return
    if plain[:2] == packed[:2]:
        assert rows is None  # packed twice
        return
    expected = rows_of(folder / "tickets.csv", plain)
    assert (rows is None) == (expected is None)
    if rows is not None and expected is not None:
        assert texts_of(rows) == texts_of(expected)


def damaged(data: bytes) -> bytes:
    kind, at, rest = (data[:1] or b"\0")[0] % 6, int.from_bytes(data[1:3], "big") % len(PACKED), data[3:]
    match kind:
        case 0:
            return rest
        case 1:
            return PACKED[:at] + rest
        case 2:
            return PACKED[:at] + rest + PACKED[at + len(rest) :]
        case 3:
            return gzip.compress(rest, 1)
        case 4:
            return PACKED + gzip.compress(rest, 1)
        case _:
            return PACKED + rest


TARGET = Target(
    judge,
    seeds=(
        *(bytes([kind, 0, 90]) + b"41,s,b\n" for kind in range(6)),
        b"\0\0\0" + PACKED[:200],
        b"\3\0\0" + PLAIN[:200],
        b"\3\0\0" + PACKED[:200],
        b"\5\0\0" + bytes(20),
        b"\1\0\0\x1f\x8b\x08\x1f",
        b"\2\0\3\x1f",
    ),
    words=("\x1f", "id,subject,body\n", "1,s,b\n"),
    most_bytes=256,
)
