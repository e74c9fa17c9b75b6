"""A help desk's JSON export of any bytes: the same tickets on one line, on many, and packed."""

import gzip
import json
from pathlib import Path
from typing import Any, get_args

from tests.fuzz.target import Target
from tests.fuzz.tickets import rows_of, texts_of
from tickets_batch.settings import ExportFormat

FORMATS = get_args(ExportFormat)


def judge(data: bytes, folder: Path) -> None:
    product, content = FORMATS[(data[:1] or b"\0")[0] % len(FORMATS)], data[1:]
    path = folder / "tickets.json"
    rows = rows_of(path, content, format=product)
    packed = rows_of(folder / "tickets.json.gz", gzip.compress(content, 1), format=product)
    assert (packed is None) == (rows is None) or not content.strip(b"\xef\xbb\xbf \t\r\n\0")
    if packed is not None and rows is not None:
        assert texts_of(packed) == texts_of(rows)
    document = whole(content)
    if rows is None or document is None:
        return
    spread = rows_of(path, json.dumps(document, indent=1).encode(), format=product)
    narrow = rows_of(path, json.dumps(document, separators=(",", ":")).encode(), format=product)
    assert spread is not None
    assert narrow is not None
    assert texts_of(spread) == texts_of(narrow)


def whole(content: bytes) -> Any:
    """The one document that this is, with its numbers as they are written; None where it is something else."""
    try:
        value = json.loads(content.decode(), parse_int=str, parse_float=str, parse_constant=str)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict | list) else None


TICKET = b'{"id": 1, "key": "A-1", "subject": "s", "description": "b", "updated_at": "2026-11-30T08:00:00Z"}'
ISSUE = b"""{"key": "A-1", "fields": {"summary": "s", "description": {"type": "doc", "content": [{"type": "paragraph",
"content": [{"type": "text", "text": "b"}, {"type": "hardBreak"}, {"type": "mention", "attrs": {"text": "@a"}}]}]}}}"""
TARGET = Target(
    judge,
    seeds=(
        b"\0" + TICKET,
        b'\0{"tickets": [' + TICKET + b", " + TICKET.replace(b"08", b"09") + b"]}",
        b"\0" + TICKET + b"\n" + TICKET + b"\n{\n",
        b"\1[" + TICKET + b", [], 7, " + TICKET + b"]",
        b'\1{"ticket": ' + TICKET + b"}",
        b'\2{"issues": [' + ISSUE + b"]}",
        b"\2" + ISSUE + b"," + ISSUE,
        b"\0" + b'{"a":' * 300,
    ),
    words=('"tickets": [', '"id": ', '"subject": ', '"description": ', '"fields": ', '"summary": ', '"ticket": ',
           '"content": [', '"type": "text"', '"updated_at": ', '"comments": [', "{", "}", "[", "]", ",", "\n", "null"),
)  # fmt: skip
