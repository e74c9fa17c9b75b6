"""JSONL: one object a line, nested fields by dotted paths."""

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jobs.intake import decode
from jobs.ticket import Ticket
from tests.support.intake import AT_NOON, Read, read_file, refused
from tickets_batch.settings import Columns

NOON = "2026-11-30 12:00:00"


def lines(*rows: object) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def row(number: object = 1, **more: object) -> dict[str, object]:
    return {"id": number, "created_at": NOON, "subject": "s", "body": "b", **more}


def read_jsonl(folder: Path, content: str | bytes, columns: Columns | None = None, every_row: bool = False) -> Read:
    return read_file(folder, content, "tickets.jsonl", columns=columns, every_row=every_row)


def test_one_object_a_line(tmp_path: Path) -> None:
    seen = read_jsonl(tmp_path, lines(row("T-1", subject="Hello", body="My parcel\r\nis late")))
    assert seen.tickets == [Ticket("T-1", "Hello", "My parcel\nis late", AT_NOON, 0, 1)]
    assert seen.notes == ()


@pytest.mark.parametrize("name", ["tickets.ndjson", "tickets.json", "TICKETS.JSONL", "tickets.jsonl.gz"])
def test_other_names(tmp_path: Path, name: str) -> None:
    assert read_file(tmp_path, lines(row()), name).bodies == {"1": "b"}


def test_byte_order_mark_crlf_blank_lines_and_no_newline_at_the_end(tmp_path: Path) -> None:
    content = "\ufeff\r\n" + lines(row(1)).replace("\n", "\r\n") + "\n  \n" + json.dumps(row(2))
    seen = read_jsonl(tmp_path, content)
    assert [(ticket.custom_id, ticket.line) for ticket in seen.tickets] == [("1", 2), ("2", 5)]
    assert seen.rejections == []


def test_nested_fields_are_named_with_dots(tmp_path: Path) -> None:
    columns = Columns(id="ticket.key", subject="fields.summary", body="comments.0.text", created_at="fields.created")
    nested = {
        "ticket": {"key": "A-1"},
        "fields": {"summary": "Words", "created": NOON},
        "comments": [{"text": "first"}, {"text": "second"}],
    }
    flat = {"ticket.key": "A-2", "fields": nested["fields"], "comments": []}
    seen = read_jsonl(tmp_path, lines(nested, flat), columns)
    assert [(ticket.custom_id, ticket.subject, ticket.body) for ticket in seen.tickets] == [
        ("A-1", "Words", "first"),
        ("A-2", "Words", ""),
    ]


@pytest.mark.parametrize(
    ("written", "custom_id"),
    [
        ("7", "7"),
        ("123456789012345678901234567890", "123456789012345678901234567890"),
        ("1.50", "1.50"),  # as it stands in the file
        ("9" * 500, "9" * 500),
        ('" x "', "x"),
        ('"\\ud83d\\ude00"', "😀"),
        ('"a\\u0000b\\ud800"', "a\ufffdb\ufffd"),
    ],
)
def test_ids_are_texts_or_numbers(tmp_path: Path, written: str, custom_id: str) -> None:
    content = f'{{"id": {written}, "created_at": "{NOON}", "body": "b"}}\n'
    assert [ticket.custom_id for ticket in read_jsonl(tmp_path, content).tickets] == [custom_id]


def test_dates_as_numbers_and_empty_values(tmp_path: Path) -> None:
    seen = read_jsonl(
        tmp_path,
        lines(
            row(1, created_at=1796036400),
            row(2, created_at=1796036400000, subject=None),
            row(3, body=None),
            row(4, subject=12, body=3.5),
            {"id": 5, "created_at": NOON, "body": "no subject"},
        ),
    )
    assert [(ticket.subject, ticket.body) for ticket in seen.tickets] == [
        ("s", "b"),
        ("", "b"),
        ("s", ""),
        ("12", "3.5"),
        ("", "no subject"),
    ]
    assert {ticket.created_at for ticket in seen.tickets} == {AT_NOON}


def test_rows_that_cannot_be_used_are_listed_by_line_and_stop_no_other(tmp_path: Path) -> None:
    content = (
        lines(row(1))
        + '{"id": 2, "body": "cut\n'
        + lines([1, 2], "text", None, 7)
        + lines(row(None), {"created_at": NOON, "body": "b"}, row(9, body={"html": "x"}), row(10, subject=["a"]))
        + lines(row(True), row(12, created_at=None), row(13, created_at="soon"), row(14, subject="", body=" "))
        + "[" * 100_000
        + "\n"
        + json.dumps(row(16))
        + ",\n"
        + lines(row(17))
    )
    seen = read_jsonl(tmp_path, content)
    assert list(seen.bodies) == ["1", "17"]
    assert seen.reasons == {
        2: "not valid JSON: Unterminated string starting at column 19",
        3: "not a JSON object",
        4: "not a JSON object",
        5: "not a JSON object",
        6: "not a JSON object",
        7: "the id is empty",
        8: "the id is empty",
        9: "the body is an object, not text: name a field that holds text, with dots where it is nested",
        10: "the subject is a list, not text: name a field that holds text, with dots where it is nested",
        11: "the id is true or false, not text: name a field that holds text, with dots where it is nested",
        12: "created_at is empty",
        13: 'created_at "soon" is not a date; write for example 2026-11-30 08:15:00',
        14: "subject and body are both empty",
        15: "not usable JSON: nested too deeply",
        16: "not valid JSON: Extra data at column 77",
    }


def test_a_line_beyond_all_bounds_is_skipped(tmp_path: Path) -> None:
    huge = row(2, body="x" * decode.LINE_LIMIT_CHARACTERS)
    seen = read_jsonl(tmp_path, lines(row(1), huge, row(3)))
    assert list(seen.bodies) == ["1", "3"]
    assert seen.reasons == {2: "the line is longer than 16,777,216 characters"}


class TestFilesThatCannotBeUsed:
    def test_a_json_array(self, tmp_path: Path) -> None:
        with refused("is not JSONL", "it is one JSON array", "jq -c '.[]' tickets.jsonl"):
            read_jsonl(tmp_path, json.dumps([row(1), row(2)]))
        with refused("it is one JSON array"):
            read_jsonl(tmp_path, json.dumps([row(1), row(2)], indent=2))

    def test_objects_over_many_lines(self, tmp_path: Path) -> None:
        with refused("its objects spread over many lines", "jq -c . tickets.jsonl"):
            read_jsonl(tmp_path, json.dumps(row(1), indent=2))

    def test_csv_under_the_wrong_name(self, tmp_path: Path) -> None:
        with refused("is not JSONL, one object a line: its first line is not valid JSON"):
            read_jsonl(tmp_path, "id,body\n1,x\n")

    def test_json_under_the_name_of_csv(self, tmp_path: Path) -> None:
        with refused("holds JSON, not CSV", "named .jsonl"):
            read_file(tmp_path, lines(row()), "tickets.csv")

    def test_missing_fields_name_the_nearest_and_those_there_are(self, tmp_path: Path) -> None:
        nested = {"id": 1, "created": NOON, "fields": {"descripton": "x"}, "tags": ["a"]}
        with refused(
            'no column "fields.description" for columns.body (nearest: "fields.descripton")',
            'no column "created_at" for columns.created_at (nearest: "created")',
            "its columns are: id, created, fields.descripton, tags",
        ):
            read_jsonl(tmp_path, lines(nested), Columns(body="fields.description"))


def test_a_field_may_be_missing_where_it_is_empty(tmp_path: Path) -> None:
    columns = Columns(subject="subject", priority="priority")
    seen = read_jsonl(tmp_path, lines({"id": 1, "created_at": NOON, "body": "b"}, row(2, priority="high")), columns)
    assert [ticket.priority for ticket in seen.tickets] == [0, 1]


def test_a_field_that_is_always_null_is_there(tmp_path: Path) -> None:
    content = lines(*(row(number, subject=None, priority=None) for number in range(200)))
    seen = read_jsonl(tmp_path, content, Columns(subject="subject", priority="priority"))
    assert len(seen.tickets) == 200


def test_every_row_needs_no_dates(tmp_path: Path) -> None:
    assert read_jsonl(tmp_path, lines({"id": 1, "body": "b"}), every_row=True).tickets == [
        Ticket("1", "", "b", None, 0, 1)
    ]


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    st.lists(st.text(max_size=30), min_size=1, max_size=8),
    st.booleans(),
    st.sampled_from(["utf-8", "utf-8-sig", "utf-16"]),
    st.booleans(),
)
def test_what_any_program_writes_is_read_back(
    tmp_path: Path, bodies: list[str], escaped: bool, encoding: str, zipped: bool
) -> None:
    written = "".join(
        json.dumps(row(number, body="<" + body), ensure_ascii=escaped) + "\n" for number, body in enumerate(bodies)
    )
    content = written.encode(encoding, "replace")
    seen = read_jsonl(tmp_path, gzip.compress(content, mtime=0) if zipped else content)
    assert seen.rejections == []
    assert [ticket.body for ticket in seen.tickets] == [
        ("<" + body).replace("\r\n", "\n").replace("\r", "\n").replace("\0", "\ufffd").strip() for body in bodies
    ]


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.binary(max_size=300) | st.text('{}[]",:\n\\u01eE-. ', max_size=80).map(str.encode))
def test_any_rest_of_a_file_gives_tickets_and_rejections_only(tmp_path: Path, rest: bytes) -> None:
    seen = read_jsonl(tmp_path, lines(row("T-1")).encode() + rest)
    assert seen.tickets[0].custom_id == "T-1"
    for rejection in seen.rejections:
        assert "\n" not in rejection.reason
