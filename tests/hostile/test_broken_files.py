"""Files that are broken, or made to break who reads them: usable rows come in, the others have a reason each."""

import gzip
import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.support.intake import read_file, refused

HEAD = b"id,subject,body\n"
GOOD = b"1,s,b\n"
DEEP = b"[" * 100_000


class File(NamedTuple):
    """`ids` come in and `reasons` stand for the other rows, in order; or the whole is refused with `error` in it."""

    name: str
    content: bytes
    ids: str = ""
    reasons: tuple[str, ...] = ()
    error: str = ""
    ending: str = ".csv"
    format: str | None = None


def packed(content: bytes) -> bytes:
    return gzip.compress(content)


def jsonl(name: str, *lines: bytes, ids: str = "", reasons: tuple[str, ...] = (), error: str = "") -> File:
    return File(name, b"\n".join(lines), ids, reasons, error, ".jsonl")


def page(name: str, content: bytes, ids: str = "", reasons: tuple[str, ...] = (), error: str = "") -> File:
    return File(name, content, ids, reasons, error, ".json", "zendesk")


def row(number: int, **more: object) -> bytes:
    return json.dumps({"id": number, "subject": "s", "body": "b"} | more).encode()


FILES = [
    # CSV
    File("quote without end", HEAD + b'1,s,"b\n2,s,b\n', "2", ("no end",)),
    File("quote in the middle", HEAD + b'1,s,"b"c"\n2,s,b\n', "12"),
    File("quotes without end on every line", HEAD + b'1,s,"b\n' * 50, "1" * 49, ("no end",)),
    File("row of one cell", HEAD + b"1\n2,s,b\n", "2", ("1 column, but the header has 3",)),
    File("row of ten thousand cells", HEAD + b"1,s,b" + b",x" * 10_000 + b"\n2,s,b\n", "2", ("10,003 columns",)),
    File("row of ten thousand empty cells", HEAD + b"1,s,b" + b"," * 10_000 + b"\n2,s,b\n", "12"),
    File("header of ten thousand columns", HEAD[:-1] + b",x" * 10_000 + b"\n" + GOOD, "1"),
    File("the same column a thousand times", b"id,subject" + b",body" * 1000 + b"\n1,s" + b",b" * 1000, "1"),
    File("no column known", b"a,b,c\n1,2,3\n", error='no column "id"'),
    File("header alone", HEAD, ""),
    File("header without end", b'id,subject,"body\n1,s,b\n', error="its header cannot be read"),
    File("blank lines alone", b"\n\n\n\n", error="is empty"),
    File("blank rows", HEAD + b"\n,,\n   \n" + GOOD, "1"),
    File("id of white space", HEAD + b" ,s,b\n" + GOOD, "1", ("the id is empty",)),
    File("id of NUL", HEAD + b"\0,s,b\n" + GOOD, "\N{REPLACEMENT CHARACTER}1"),
    File("endless id", HEAD + b"x" * 501 + b",s,b\n" + GOOD, "1", ("longer than 500",)),
    File("nothing said", HEAD + b"1,,\n2,s,b\n", "2", ("both empty",)),
    File("the same id twice", HEAD + GOOD + GOOD, "11"),
    File("carriage returns alone", HEAD.replace(b"\n", b"\r") + b"1,s,b\r2,s,b\r", "12"),
    File("no line end at the end", HEAD + b"1,s,b", "1"),
    File("separator hint that lies", b"sep=;\nid,subject,body\n1,s,b\n", error='no column "id"'),
    File("Latin-1 among UTF-8", HEAD + b"1,s,caf\xe9\n2,s,caf\xc3\xa9\n", "12"),
    File("overlong encoding", HEAD + b"1,s,\xc0\xaf\xe0\x80\xaf\n", "1"),
    File("bytes beyond UTF-8", HEAD + b"1,s,\xff\xfe\xf8\x88\x80\x80\x80\n", "1"),
    File("ends in the middle of a letter", HEAD + b"1,s,caf\xc3", "1"),
    File("two byte-order marks", b"\xef\xbb\xbf\xef\xbb\xbf" + HEAD + GOOD, error='no column "id"'),
    # Not what it is named
    File("program", b"\x7fELF\x02\x01\x01\0\0\0" * 500, error="is binary"),
    File("workbook", b"PK\x03\x04" + b"\0" * 100, error="Excel workbook"),
    File("database", b"SQLite format 3\0" + b"\0" * 100, error="SQLite database"),
    File("web page", b"<!DOCTYPE html><title>Log in</title>", error="web page"),
    File("XML with entities", b'<?xml version="1.0"?><!DOCTYPE l [<!ENTITY a "&b;">]>', error="web page or XML"),
    File("empty", b"", error="is empty"),
    File("NULs alone", b"\0" * 100_000, error="is empty"),
    File("JSON under the name of CSV", b'[{"id": 1}]', error="holds JSON, not CSV"),
    # Packed
    File("packed twice", packed(packed(HEAD + GOOD)), error="compressed twice"),
    File("packed and cut off", packed(HEAD + GOOD)[:-9], error="cut off"),
    File("packed and damaged", packed(HEAD + GOOD * 99)[:-4] + b"abcd", error="damaged"),
    File("packed with a wrong sum", packed(HEAD + GOOD)[:-8] + b"\0" * 8, error="damaged"),
    File("packed with rubbish behind", packed(HEAD + GOOD) + b"rubbish", error="damaged"),
    File("a packed head alone", b"\x1f\x8b\x08", error="cut off"),
    File("packed line of a bomb", packed(HEAD + b"1,s," + b"b" * 17_000_000 + b"\n2,s,b"), "2", ("longer than",)),
    File("packed bomb of NULs", packed(b"\0" * 20_000_000), error="is empty"),
    # JSON
    jsonl("broken line", b'{"id": 1', row(2), ids="2", reasons=("not valid JSON",)),
    jsonl("deep nesting", row(1)[:-1] + b', "x": ' + DEEP, row(2), ids="2", reasons=("nested too deeply",)),
    jsonl("deep nesting that ends", row(1)[:-1] + b',"x":' + b"[" * 5000 + b"]" * 5000 + b"}", row(2), ids="2",
          reasons=("nested too deeply",)),
    jsonl("endless number", b'{"id": ' + b"9" * 10_000 + b', "subject": "s"}', row(2), ids="2",
          reasons=("longer than 500",)),
    jsonl("not a number", b'{"id": NaN, "subject": "s", "body": "b"}', row(2), ids="NaN2"),
    jsonl("the same key twice", b'{"id": 1, "id": 2, "subject": "s", "body": "b"}', ids="2"),
    jsonl("id is an object", row(1, id={"$ne": 1}), row(2), ids="2", reasons=("the id is an object",)),
    jsonl("id is true", row(1, id=True), row(2), ids="2", reasons=("the id is true or false",)),
    jsonl("id is null", row(1, id=None), row(2), ids="2", reasons=("the id is empty",)),
    jsonl("body is a list", row(1, body=["b"]), row(2), ids="2", reasons=("the body is a list",)),
    jsonl("prototype", row(1, __proto__={"admin": True}, constructor="x"), ids="1"),
    jsonl("array a line", b"[1, 2]", row(2), ids="2", reasons=("not a JSON object",)),
    jsonl("text a line", b'"text"', row(2), ids="2", reasons=("not a JSON object",)),
    jsonl("NULs between", row(1), b"\0\0\0", row(2), ids="12"),
    jsonl("single quotes", b"{'id': 1}", row(2), ids="2", reasons=("not valid JSON",)),
    jsonl("one array", b"[" + row(1) + b"]", error="it is one JSON array"),
    jsonl("nothing but rubbish", b"rubbish", b"rubbish", error="is not JSONL"),
    # Help desks
    page("page cut off", b'{"tickets": [{"id": 1, "description": "b"}', error="export or copy it again"),
    page("deep page", b'{"tickets": ' + DEEP, error="nested too deeply"),
    page("page within pages", b'{"tickets": [{"tickets": [{"id": 1, "subject": "s", "description": "b"}]}]}', ids="1"),
    page("tickets that are none", b'{"tickets": [1, null, "x", {"id": 1, "subject": "s", "description": "b"}]}', "1",
         ("not a JSON object",) * 3),
    page("page of nothing", b'{"tickets": []}', error='no column "id"'),
    page("endless brackets", b"[[[[[[[[", error="cannot be read"),
    page("description is an object", b'{"id": 1, "subject": "s", "description": {"a": 1}}\n{"id": 2, "subject": "s"}',
         "2", ("the body is an object",)),
]  # fmt: skip


@pytest.mark.parametrize("file", [pytest.param(file, id=file.name) for file in FILES])
def test_a_broken_file_gives_its_good_rows_or_one_clear_line(file: File, tmp_path: Path) -> None:
    more: dict[str, Any] = {"format": file.format} if file.format else {}
    if file.error:
        with refused(file.error):
            read_file(tmp_path, file.content, f"tickets{file.ending}", every_row=True, **more)
        return
    got = read_file(tmp_path, file.content, f"tickets{file.ending}", every_row=True, **more)
    assert "".join(ticket.custom_id for ticket in got.tickets) == file.ids
    assert len(got.rejections) == len(file.reasons), got.reasons
    for rejection, reason in zip(got.rejections, file.reasons, strict=True):
        assert reason in rejection.reason
        assert len(rejection.reason) < 300
        rejection.reason.encode()
