"""Requests as bytes that no honest caller sends: each has a clear error or a right answer, and the model sees no trick.

One gateway in front of one raw server for all of them; it must serve an honest caller after each.
"""

import json
import re
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from tests.hostile.front import Front, front_of
from tests.support.canned import whole
from tests.support.valkey import ValkeyServer

CHAT = "/v1/chat/completions"
HONEST = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4}
MOST_BODY = 64 * 1024
MOST_TOKENS = 256
SECRET = b"sk-live-0123456789"


class Asked(NamedTuple):
    """`status` is that of the first answer; what the model was sent matches `sent`, and it was sent nothing without."""

    name: str
    request: bytes
    status: int
    sent: bytes | None = None


def head(*lines: str, first: str = f"POST {CHAT} HTTP/1.1", body: bytes = b"") -> bytes:
    return "\r\n".join([first, "host: gateway", *lines, "", ""]).encode("latin-1") + body


def chat(**values: object) -> bytes:
    return said(json.dumps(HONEST | values).encode())


def said(body: bytes) -> bytes:
    return head(f"content-length: {len(body)}", "connection: close", body=body)


BODY = json.dumps(HONEST).encode()
LENGTH = f"content-length: {len(BODY)}"
CHUNKED = b"%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY)
SMUGGLED = b"GET /admin HTTP/1.1\r\nhost: x\r\n\r\n"

REQUESTS = [
    # --- two readings of one request
    Asked("length and chunks", head(LENGTH, "transfer-encoding: chunked", body=CHUNKED), 400),
    Asked("chunks and length", head("transfer-encoding: chunked", "content-length: 4", body=CHUNKED), 400),
    Asked("length and chunks passed on", head("content-length: 4", "transfer-encoding: chunked",
          first="POST /v1/embeddings HTTP/1.1", body=CHUNKED), 400),
    Asked("two lengths", head(LENGTH, "content-length: 4", body=BODY), 400),
    Asked("two lengths in one line", head(f"content-length: {len(BODY)}, 4", body=BODY), 400),
    Asked("the same length twice", head(LENGTH, LENGTH, "connection: close", body=BODY), 200, b"content-length"),
    Asked("length with a plus", head(f"content-length: +{len(BODY)}", body=BODY), 400),
    Asked("negative length", head("content-length: -1", body=BODY), 400),
    Asked("length in hexadecimal", head(f"content-length: {len(BODY):#x}", body=BODY), 400),
    Asked("length of many digits", head("content-length: " + "9" * 30, body=BODY), 400),
    Asked("length of a terabyte", head("content-length: 1099511627776", body=BODY), 413),
    Asked("chunks by another name", head("transfer-encoding: xchunked", body=CHUNKED), 400),
    Asked("chunks twice", head("transfer-encoding: chunked, chunked", body=CHUNKED), 400),
    Asked("packed chunks", head("transfer-encoding: gzip, chunked", body=CHUNKED), 400),
    Asked("space before the colon", head("transfer-encoding : chunked", body=CHUNKED), 400),
    Asked("name with a control", head("transfer\x0bencoding: chunked", body=CHUNKED), 400),
    Asked("value with NUL", head("x: a\0b", LENGTH, body=BODY), 400),
    Asked("value with a bare carriage return", head("x: a\rtransfer-encoding: chunked", LENGTH, body=BODY), 400),
    Asked("chunk of a negative size", head("transfer-encoding: chunked", body=b"-5\r\nhello\r\n0\r\n\r\n"), 400),
    Asked("chunk of an absurd size", head("transfer-encoding: chunked", body=b"f" * 30 + b"\r\n"), 400),
    Asked("chunk without its end", head("transfer-encoding: chunked", body=b"2\r\nhello\r\n"), 400),
    Asked("endless chunk size line", head("transfer-encoding: chunked", body=b"1;" + b"x" * 200_000), 400),
    Asked("right chunks", head("transfer-encoding: chunked", "connection: close", body=CHUNKED), 200,
          b"content-length"),
    Asked("a request behind the body", head(LENGTH, "connection: close", body=BODY + SMUGGLED), 200,
          rb"\A(?!.*/admin)"),
    Asked("hop by hop on demand", head(LENGTH, "connection: close, x-mine", "x-mine: 1", body=BODY), 200,
          rb"(?i)\A(?!.*x-mine)"),
    Asked("host of another", head(LENGTH, "connection: close", "x-forwarded-host: evil.example", body=BODY), 200,
          rb"host: 127\.0\.0\.1"),
    # --- lines and heads
    Asked("no HTTP", b"hello\r\n\r\n", 400),
    Asked("TLS", b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03" + b"\0" * 500 + b"\r\n\r\n", 400),
    Asked("HTTP/2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
    Asked("HTTP/9", head(first=f"POST {CHAT} HTTP/9.9"), 400),
    Asked("no host", b"POST /v1/chat/completions HTTP/1.1\r\n\r\n", 400),
    Asked("two hosts", head("host: evil.example", LENGTH, body=BODY), 400),
    Asked("endless line", b"GET /" + b"a" * 200_000, 400),
    Asked("endless header", head("x: " + "a" * 200_000), 400),
    Asked("ten thousand headers", head(*(f"x{number}: a" for number in range(10_000))), 400),
    Asked("method with a space", head(first=f"PO ST {CHAT} HTTP/1.1"), 400),
    Asked("upgrade", head(LENGTH, "connection: close, upgrade", "upgrade: websocket", body=BODY), 200,
          rb"(?i)\A(?!.*upgrade)"),
    # --- paths
    Asked("through to another host", head(first="GET http://evil.example/ HTTP/1.1"), 400),
    Asked("tunnel", head(first="CONNECT evil.example:443 HTTP/1.1"), 400),
    Asked("star", head(first="OPTIONS * HTTP/1.1"), 400),
    Asked("two slashes", head(LENGTH, first="POST //v1/chat/completions HTTP/1.1", body=BODY), 400),
    Asked("dots", head(LENGTH, first="POST /v1/x/../chat/completions HTTP/1.1", body=BODY), 400),
    Asked("dots in disguise", head(LENGTH, first="POST /v1/x/%2e%2e/chat/completions HTTP/1.1", body=BODY), 400),
    Asked("slashes in disguise", head(LENGTH, first="POST /v1/%2fchat/completions HTTP/1.1", body=BODY), 400),
    Asked("path in disguise", head(LENGTH, "connection: close", first="POST /v1/ch%61t/completions HTTP/1.1",
          body=BODY), 200,
          b"POST /v1/chat/completions "),
    Asked("trailing slash", head(LENGTH, "connection: close", first=f"POST {CHAT}/ HTTP/1.1", body=BODY), 200,
          b"POST /v1/chat/completions "),
    Asked("line end in disguise", head("connection: close", first="GET /v1/models%0d%0ax:%20y HTTP/1.1"), 200,
          rb"GET /v1/models%0d%0ax:%20y "),
    Asked("path with parameters", head(LENGTH, first=f"POST {CHAT};a=b HTTP/1.1", body=BODY), 400),
    Asked("path of another system", head(LENGTH, first="POST /v1\\chat/completions HTTP/1.1", body=BODY), 400),
    Asked("path with NUL", head(LENGTH, first=f"POST {CHAT}%00 HTTP/1.1", body=BODY), 400),
    Asked("path with a dot behind", head(LENGTH, first=f"POST {CHAT}. HTTP/1.1", body=BODY), 400),
    Asked("path in capitals", head(LENGTH, first="POST /V1/Chat/Completions HTTP/1.1", body=BODY), 400),
    Asked("an echo of what is added", head(first="TRACE /v1/models HTTP/1.1"), 405),
    # --- bodies
    Asked("UTF-16", said(BODY.decode().encode("utf-16")), 400),
    Asked("UTF-32", said(BODY.decode().encode("utf-32")), 400),
    Asked("number beyond numbers", said(b'{"messages": [], "temperature": 1e999}'), 400),
    Asked("oversized", said(b" " * (MOST_BODY + 1)), 413),
    Asked("oversized in chunks", head("transfer-encoding: chunked", body=b"20000\r\n" + b" " * 0x20000), 413),
    Asked("no body", said(b""), 400),
    Asked("not JSON", said(b"{"), 400),
    Asked("a list", said(b"[]"), 400),
    Asked("NaN", said(b'{"temperature": NaN, "messages": []}'), 400),
    Asked("Infinity", said(b'{"max_tokens": -Infinity, "messages": []}'), 400),
    Asked("invalid UTF-8", said(b'{"model": "\xff"}'), 400),
    Asked("deep nesting", said(b"[" * 60_000), 400),
    Asked("deep nesting in an object", said(b'{"a":' * 10_000), 400),
    Asked("endless number", said(b'{"max_tokens": ' + b"9" * 20_000 + b"}"), 400),
    Asked("two caps", said(b'{"max_tokens": 4, "messages": [], "max_tokens": 100000}'), 400),
    Asked("messages twice", said(b'{"messages": [], "messages": [], "max_tokens": 4}'), 400),
    Asked("message of text", chat(messages=["hi"]), 400),
    Asked("huge n", chat(n=1_000_000), 400),
    Asked("n as a float", chat(n=1e6), 400),
    Asked("n beyond numbers", said(b'{"messages": [], "n": 1e999}'), 400),
    Asked("n as text", chat(n="1000000"), 400),
    Asked("n is true", chat(n=True), 400),
    Asked("n and a half", chat(n=1.5), 400),
    Asked("best of many", chat(best_of=129), 400),
    Asked("negative n", chat(n=-5), 200, b""),
    Asked("absurd cap", chat(max_tokens=10**12), 200, b'"max_tokens":%d' % MOST_TOKENS),
    Asked("cap without end", chat(max_tokens=-1), 200, b'"max_tokens":%d' % MOST_TOKENS),
    Asked("cap beyond numbers", said(b'{"messages": [], "max_tokens": 1e999}'), 200, b'"max_tokens":%d' % MOST_TOKENS),
    Asked("no cap", said(b'{"messages": []}'), 200, b'"max_tokens":%d' % MOST_TOKENS),
    Asked("absurd cap by another name", chat(n_predict=10**9), 200, b'"n_predict":%d' % MOST_TOKENS),
    Asked("cap as text", chat(max_tokens="100000"), 400),
    Asked("cap as a list", chat(max_tokens=[4]), 400),
    Asked("ten thousand prompts", chat(prompt=["a"] * 10_000, max_tokens=MOST_TOKENS), 400),
    Asked("prompt over the capacity", chat(prompt="word " * 12_000), 400),
    Asked("lone surrogates", said(b'{"messages": [{"role": "user", "content": "\\ud83d\\udc00\\ud83d"}]}'), 200, b""),
    Asked("model that is none", chat(model={"$ne": None}), 200, b""),
]  # fmt: skip
DEPTHS = [pytest.param(depth, id=f"{depth} deep") for depth in (900, 950, 970, 980, 985, 990, 995, 1000)]


@pytest.fixture(scope="module")
def front(valkey_session: ValkeyServer) -> Iterator[Front]:
    bounds = {"max_body_bytes": MOST_BODY, "max_output_tokens": MOST_TOKENS}
    with front_of(valkey_session.url, whole(200, b'{"choices": []}'), **bounds) as opened:
        yield opened


@pytest.mark.parametrize("asked", [pytest.param(asked, id=asked.name) for asked in REQUESTS])
def test_a_request_that_no_honest_caller_sends(asked: Asked, front: Front, caplog: pytest.LogCaptureFixture) -> None:
    request = asked.request.replace(b"host: gateway\r\n", b"host: gateway\r\nauthorization: Bearer " + SECRET + b"\r\n")
    answer, sent = front.ask(request)
    assert answer.startswith(b"HTTP/1.1 %d " % asked.status), answer[:200]
    if asked.status >= 400:
        told, _ = json.JSONDecoder().raw_decode(answer.partition(b"\r\n\r\n")[2].decode())
        error = told["error"]
        assert error["message"]
        assert "\n" not in error["message"]
    if asked.sent is None:
        assert sent == []
    else:
        (one,) = sent
        assert re.search(asked.sent, one, re.DOTALL), one[:500]
    answer, _ = front.ask(said(BODY))
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert caplog.records == []


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("where", ["tools", "metadata"])
def test_at_the_edge_of_what_is_read_nothing_fails(where: str, depth: int, front: Front) -> None:
    body = b'{"messages": [], "%b": ' % where.encode() + b"[" * depth + b"1" + b"]" * depth + b"}"
    answer, _ = front.ask(said(body))
    assert answer.startswith((b"HTTP/1.1 200 ", b"HTTP/1.1 400 "))


def test_every_case_has_its_own_name() -> None:
    assert len({asked.name for asked in REQUESTS}) == len(REQUESTS)
