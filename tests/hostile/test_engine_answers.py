"""Answers of an engine that is broken, foreign or hostile, to the worker and through the gateway.

The worker makes an attempt of each that says what was wrong; the gateway passes on what is an answer and tells an error
for what is none. Neither goes to an address that is not configured, reads on without end, or fails itself.
"""

import asyncio
import gzip
import json
from collections.abc import Iterator
from http.client import HTTPException
from typing import NamedTuple

import pytest

from jobs.outcomes import Attempt, Symptom
from tests.hostile.front import Front, front_of
from tests.support.calls import LABELS, ask, client_of
from tests.support.canned import STREAM_HEAD, CannedServer, framed, whole
from tests.support.gateways import fetch
from tests.support.valkey import ValkeyServer

BODY = b'{"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4}'
BOMB = gzip.compress(b"\0" * 20_000_000)
REFUSED, ELSEWHERE = 502, b"ELSEWHERE"


def event(**chunk: object) -> bytes:
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"


def text(content: object, **choice: object) -> bytes:
    return event(choices=[{"delta": {"content": content}, **choice}])


RIGHT = text('{"label": "billing"}', finish_reason="stop")
DONE = b"data: [DONE]\n\n"


def usage(prompt: object, completion: object) -> bytes:
    return event(choices=[], usage={"prompt_tokens": prompt, "completion_tokens": completion})


def stream(*data: bytes) -> bytes:
    return STREAM_HEAD + b"".join(map(framed, data)) + framed(b"")


class Answer(NamedTuple):
    """`symptom` is what the worker sees (None: the label is billing); `status` what the gateway's caller does."""

    name: str
    said: bytes
    symptom: Symptom | None
    status: int | None = 200  # None: cut short, before or after its head
    for_ever: bytes = b""


def page(status: int, *headers: str, body: bytes = b"<html>No</html>", kind: str = "text/html") -> bytes:
    return whole(status, body, kind, *headers)


ANSWERS = [
    # --- to other hosts
    *(
        Answer(f"redirect {status} elsewhere", page(status, "location: http://ELSEWHERE/v1/chat/completions"),
               Symptom.BLOCKED, REFUSED)
        for status in (301, 302, 303, 307, 308)
    ),
    Answer("redirect without a scheme", page(307, "location: //ELSEWHERE/"), Symptom.BLOCKED, REFUSED),
    Answer("redirect with backslashes", page(307, "location: /\\ELSEWHERE/"), Symptom.BLOCKED, REFUSED),
    Answer("redirect to a file", page(307, "location: file:///etc/passwd"), Symptom.BLOCKED, REFUSED),
    Answer("redirect to nothing", page(307, "location: "), Symptom.BLOCKED, REFUSED),
    Answer("two redirects", page(307, "location: /a", "location: http://ELSEWHERE/"), Symptom.BLOCKED, REFUSED),
    Answer("redirect on the same host", page(307, "location: /v2/chat"), Symptom.BLOCKED, 307),
    Answer("refresh", page(200, "refresh: 0; url=http://ELSEWHERE/"), Symptom.BLOCKED),
    Answer("authenticate elsewhere", page(407, 'proxy-authenticate: Basic realm="http://ELSEWHERE"'),
           Symptom.BLOCKED, 407),
    # --- no HTTP, or hardly
    Answer("another protocol", b"SSH-2.0-OpenSSH_9.2\r\n\r\n", Symptom.DISCONNECTED, REFUSED),
    Answer("switching protocols", b"HTTP/1.1 101 Switching\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n",
           Symptom.DISCONNECTED, REFUSED),
    Answer("status of no meaning", page(999), Symptom.SERVER_ERROR, REFUSED),
    Answer("status of two digits", b"HTTP/1.1 20 OK\r\n\r\n", Symptom.DISCONNECTED, REFUSED),
    Answer("huge header", b"HTTP/1.1 200 OK\r\nx: " + b"a" * 500_000 + b"\r\n\r\n", Symptom.DISCONNECTED, REFUSED),
    Answer("endless header", b"HTTP/1.1 200 OK\r\nx: ", Symptom.DISCONNECTED, REFUSED, b"a" * 60_000),
    Answer("endless headers", b"HTTP/1.1 200 OK\r\n", Symptom.DISCONNECTED, REFUSED, b"x: y\r\n" * 10_000),
    Answer("header with a line of its own", b"HTTP/1.1 200 OK\r\nx: a\rset-cookie: b\r\n\r\n",
           Symptom.DISCONNECTED, REFUSED),
    Answer("two lengths", b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab",
           Symptom.DISCONNECTED, REFUSED),
    Answer("length of many digits", b"HTTP/1.1 200 OK\r\ncontent-length: " + b"9" * 40 + b"\r\n\r\n",
           Symptom.DISCONNECTED, REFUSED),
    Answer("wrong chunks", STREAM_HEAD + b"zz\r\n", Symptom.DISCONNECTED, None),
    Answer("endless chunk line", STREAM_HEAD + b"1;", Symptom.DISCONNECTED, None, b"x" * 60_000),
    # --- pages and bombs
    Answer("page", page(200), Symptom.BLOCKED),
    Answer("page with an error", page(500), Symptom.SERVER_ERROR, 500),
    Answer("no content", page(204, body=b""), Symptom.BLOCKED, 204),
    Answer("packed bomb", page(200, "content-encoding: gzip", body=BOMB, kind="text/event-stream"),
           Symptom.INVALID_OUTPUT),
    Answer("packed error", page(500, "content-encoding: gzip", body=BOMB, kind="application/json"),
           Symptom.SERVER_ERROR, 500),
    Answer("packing that is none", page(200, "content-encoding: gzip", body=b"no gzip", kind="text/event-stream"),
           Symptom.DISCONNECTED),
    Answer("deep error", page(400, body=b'{"error":' * 20_000, kind="application/json"), Symptom.REFUSED, 400),
    Answer("error of another kind", page(400, body=b'{"error": [[], 7]}', kind="application/json"),
           Symptom.REFUSED, 400),
    # --- streams
    Answer("right", stream(RIGHT, DONE), None),
    Answer("invalid UTF-8", stream(b'data: {"choices": [{"delta": {"content": "\xff\xfe"}}]}\n\n'),
           Symptom.INVALID_OUTPUT),
    Answer("deep event", stream(b"data: " + b"[" * 100_000 + b"\n\n"), Symptom.INVALID_OUTPUT),
    Answer("endless number", stream(b"data: " + b"9" * 100_000 + b"\n\n"), Symptom.INVALID_OUTPUT),
    Answer("event of text", stream(b'data: "billing"\n\n'), Symptom.INVALID_OUTPUT),
    Answer("NULs", stream(b"\0" * 1000 + b"\n\n", RIGHT, DONE), None),
    Answer("event of a gigabyte", stream(b"data: " + b"x" * 300_000 + b"\n\n"), Symptom.INVALID_OUTPUT),
    Answer("choices of another kind", stream(event(choices={"0": 1}), event(choices=[1]), event(choices=[[]]), RIGHT),
           None),
    Answer("content of another kind", stream(text({"label": "vip"}), text(["vip"]), text(7), RIGHT), None),
    Answer("second choice", stream(event(choices=[{"delta": {}}, {"delta": {"content": "vip"}}]), RIGHT), None),
    Answer("tool call", stream(event(choices=[{"delta": {"tool_calls": [{"function": {"name": "rm"}}]}}]), DONE),
           Symptom.INVALID_OUTPUT),
    Answer("nothing said", stream(DONE), Symptom.INVALID_OUTPUT),
    Answer("another label", stream(text('{"label": "vip"}', finish_reason="stop"), DONE), Symptom.INVALID_OUTPUT),
    Answer("two answers", stream(text('{"label": "billing"}'), text('{"label": "shipping"}', finish_reason="stop")),
           Symptom.INVALID_OUTPUT),
    Answer("more behind its end", stream(RIGHT, DONE, event(error="too late")), Symptom.SERVER_ERROR),
    # --- lies about usage
    Answer("no tokens", stream(RIGHT, usage(0, 0), DONE), None),
    Answer("negative tokens", stream(RIGHT, usage(-5, -5), DONE), None),
    Answer("countless tokens", stream(RIGHT, usage(10**30, 10**30), DONE), None),
    Answer("tokens in words", stream(RIGHT, usage("many", None), DONE), None),
    Answer("tokens beyond numbers", stream(RIGHT, b'data: {"usage": {"prompt_tokens": NaN}}\n\n', DONE), None),
    Answer("usage of another kind", stream(RIGHT, event(usage=[1, 2]), DONE), None),
]  # fmt: skip
WORKER = [pytest.param(answer, id=answer.name) for answer in ANSWERS]


@pytest.mark.parametrize("answer", WORKER)
def test_the_worker_makes_an_attempt_of_it(answer: Answer) -> None:
    async def scene() -> tuple[Attempt, list[bytes]]:
        async with CannedServer(stream(RIGHT, DONE)) as elsewhere:
            said = answer.said.replace(ELSEWHERE, b"127.0.0.1:%d" % elsewhere.port)
            async with (
                CannedServer(said, for_ever=answer.for_ever, close=True) as server,
                client_of(server.base_url, timeout_seconds=5) as client,
            ):
                return await ask(client), elsewhere.requests

    attempt, went_elsewhere = asyncio.run(scene())
    assert attempt.symptom is answer.symptom, attempt.detail
    assert attempt.label == (None if answer.symptom else "billing")
    assert attempt.label is None or attempt.label in LABELS
    assert went_elsewhere == []
    assert len(attempt.detail) <= 500
    assert "\n" not in attempt.detail
    assert 0 <= attempt.usage.prompt_tokens < 2**31
    assert 0 <= attempt.usage.completion_tokens < 2**31
    assert len(attempt.raw or "") <= 2000


@pytest.fixture(scope="module")
def front(valkey_session: ValkeyServer) -> Iterator[Front]:
    with front_of(valkey_session.url, b"") as opened:
        yield opened


@pytest.mark.parametrize("answer", WORKER)
def test_the_gateway_passes_it_on_or_says_what_it_was(
    answer: Answer, front: Front, caplog: pytest.LogCaptureFixture
) -> None:
    said = answer.said.replace(ELSEWHERE, b"127.0.0.1:%d" % front.elsewhere.port)
    front.server.say(said, answer.for_ever, close=True)
    try:
        status, body = fetch(front.address, "POST", "/v1/chat/completions", BODY)
    except (HTTPException, OSError):  # an answer that was cut short
        status, body = None, b""
    assert status == answer.status
    if status == REFUSED:
        assert json.loads(body)["error"]["code"].startswith("upstream_")
    assert fetch(front.address, "GET", "/healthz")[0] == 200
    assert front.elsewhere.requests == []
    assert [record for record in caplog.records if record.levelname in ("ERROR", "CRITICAL")] == []
