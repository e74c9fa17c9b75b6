"""What reads the words of others, fed with anything for a fixed short while: a result or its own error, no other."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from gateway.error import Denied
from gateway.prompt import MOST_CHOICES, Prompt
from jobs.answer import InvalidOutput, parse_answer
from jobs.prompt import CLOSE, OPEN, fenced
from jobs.ticket import Rejection, Ticket
from tests.support.calls import LABELS, SPEC
from tests.support.intake import read_file
from tickets_batch.errors import SettingsError, UserError
from tickets_batch.settings import load
from workers.reply import Reply, UnreadableChunk
from workers.sse import EventParser, OversizedStream

pytestmark = pytest.mark.long

BUDGET = settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
MOST_TOKENS = 100
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inside: st.lists(inside, max_size=4) | st.dictionaries(st.text(max_size=8), inside, max_size=4),
    max_leaves=12,
)


def mixed(*words: bytes) -> st.SearchStrategy[bytes]:
    """Bytes in which the words of a language come more often than by chance."""
    return st.lists(st.sampled_from(words) | st.binary(max_size=6), max_size=40).map(b"".join)


def check(folder: Path, content: bytes, name: str, **more: Any) -> None:
    """Rows or one line, and whatever came in can be stored."""
    try:
        got = read_file(folder, content, name, every_row=True, **more)
    except UserError:
        return
    rows: list[Ticket | Rejection] = [*got.tickets, *got.rejections]
    for row in rows:
        (row.custom_id or "").encode()
    for ticket in got.tickets:
        f"{ticket.subject}{ticket.body}".encode()
        assert "\0" not in ticket.body


@BUDGET
@given(mixed(b",", b'"', b"\n", b"\r\n", b"\r", b";", b"\t", b"1,s,b\n", b'""', b"\0", b"\xff", b" ", b"<p>"))
def test_csv(tmp_path: Path, rest: bytes) -> None:
    check(tmp_path, b"id,subject,body\n" + rest, "tickets.csv")
    check(tmp_path, rest, "tickets.tsv")


@BUDGET
@given(
    mixed(b'{"id": 1, "subject": "s", "body": "b"}', b"{", b"}", b"[", b"]", b'"', b":", b",", b"\n", b"null", b"\\u")
)
def test_jsonl(tmp_path: Path, rest: bytes) -> None:
    check(tmp_path, b'{"id": 1, "subject": "s", "body": "b"}\n' + rest, "tickets.jsonl")


@BUDGET
@pytest.mark.parametrize("product", ["zendesk", "freshdesk", "jira"])
@given(value=VALUES, cut=st.integers(0, 40))
def test_exports_of_help_desks(tmp_path: Path, product: str, value: object, cut: int) -> None:
    ticket = {"id": value, "key": value, "subject": value, "description": value, "fields": {"description": value}}
    page = json.dumps({"tickets": [ticket, value, {"id": 1, "subject": "s", "description": value}]}).encode()
    check(tmp_path, page[: len(page) - cut], "tickets.json", format=product)


@BUDGET
@given(mixed(b'{"messages": []', b"{", b"}", b"[", b"]", b'"max_tokens":', b'"n":', b"1e9", b"-1", b'"', b",", b"NaN"))
@example(b'{"n": 1e9}')
@example(b'{"max_tokens": 1, "max_tokens": 1000}')
def test_the_body_of_a_chat_request_as_bytes(body: bytes) -> None:
    admitted(body)


@BUDGET
@given(st.dictionaries(st.sampled_from(["n", "best_of", "max_tokens", "max_completion_tokens", "n_predict", "messages",
                                        "prompt", "tools", "stream", "model"]), VALUES))  # fmt: skip
def test_the_body_of_a_chat_request_as_json(values: dict[str, Any]) -> None:
    admitted(json.dumps(values).encode())


def admitted(body: bytes) -> None:
    """Whatever goes on to the model is bounded as it was booked."""
    try:
        prompt = Prompt.read(body, MOST_TOKENS)
    except Denied:
        return
    sent = json.loads(prompt.body)
    caps = [sent[name] for name in ("max_tokens", "max_completion_tokens", "n_predict") if sent.get(name) is not None]
    assert caps
    assert all(0 <= cap <= MOST_TOKENS for cap in caps)
    choices = max(1, *(sent.get(name) or 1 for name in ("n", "best_of")))
    assert choices <= MOST_CHOICES
    assert prompt.output_tokens >= int(max(1, *caps, 1)) * choices


@BUDGET
@given(st.lists(mixed(b"data: ", b"\n\n", b"\r", b"\n", b'{"choices": [{"delta": {"content": "x"}}]}', b"[DONE]", b":",
                      b'{"usage": {"prompt_tokens": -1}}', b'{"error": 1}', b"event: x"), max_size=5))  # fmt: skip
def test_a_stream_of_events(pieces: list[bytes]) -> None:
    parser, reply = EventParser(), Reply()
    try:
        for piece in pieces:
            for data in parser.feed(piece):
                reply.take(data)
        for data in parser.close():
            reply.take(data)
    except (UnreadableChunk, OversizedStream):
        return
    assert reply.usage is None or reply.usage.prompt_tokens >= 0
    whole = EventParser(), Reply()
    try:
        for data in (*whole[0].feed(b"".join(pieces)), *whole[0].close()):
            whole[1].take(data)
    except UnreadableChunk:
        pytest.fail("the stream reads otherwise in one piece")
    assert whole[1].text == reply.text


@BUDGET
@given(st.text(max_size=60) | st.lists(st.sampled_from(['{"label":', '"billing"', "}", "[", "]", "```", "json\n", ".",
                                                        "billing", ","])).map("".join))  # fmt: skip
def test_an_answer(said: str) -> None:
    got = parse_answer(SPEC, said)
    assert isinstance(got, InvalidOutput) or got in LABELS


@BUDGET
@given(st.lists(st.sampled_from(["<", "/", "ticket", ">", "\u200b", " ", "t", "|", "\uff1c", "TICKET", "\n"])
                | st.text(max_size=3), max_size=30).map("".join))  # fmt: skip
def test_a_text_between_its_fences(text: str) -> None:
    sent = fenced(text, text)
    assert (sent.count(OPEN), sent.count(CLOSE)) == (1, 1)


@BUDGET
@given(mixed(b"[[pool]]\n", b"[source]\n", b'home = "a"\n', b"deadline", b" = ", b'"', b"{", b"}", b"[", b"]", b"\n",
             b"slots = 1", b"1979-05-27", b"inf"))  # fmt: skip
def test_a_settings_file(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "tickets-batch.toml"
    file.write_bytes(content)
    with suppress(SettingsError):
        assert load(file)
