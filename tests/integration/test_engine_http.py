"""The test engine's own HTTP, by bare sockets."""

import json
import socket

import pytest

from tests.engine.process import EngineThread
from tests.support.engines import post, raw

pytest_plugins = ["tests.support.engine_fixtures"]


def test_requests_sent_in_one_go_are_answered_in_order(instant_engine: EngineThread) -> None:
    requests = [post("/v1/completions", {"model": "test-model", "prompt": "x", "max_tokens": n}) for n in (1, 2)]
    last = b"GET /health HTTP/1.1\r\nconnection: close\r\n\r\n"
    answer = raw(instant_engine, b"".join(requests) + last)
    assert answer.count(b"HTTP/1.1 200 OK\r\n") == 3
    assert [row.output_tokens for row in instant_engine.log()] == [1, 2]


def test_a_request_may_come_in_pieces_and_in_chunks(instant_engine: EngineThread) -> None:
    body = json.dumps({"model": "test-model", "prompt": "x", "max_tokens": 3}).encode()
    head = b"POST /v1/completions HTTP/1.1\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n"
    message = head + b"5\r\n%b\r\n%x\r\n%b\r\n0\r\n\r\n" % (body[:5], len(body) - 5, body[5:])
    with socket.create_connection(("127.0.0.1", instant_engine.port), timeout=10) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for at in range(len(message)):
            connection.sendall(message[at : at + 1])
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert instant_engine.log()[0].output_tokens == 3


def test_a_body_is_asked_for_where_the_client_waits_to_be_asked(instant_engine: EngineThread) -> None:
    body = {"model": "test-model", "prompt": "x", "max_tokens": 3}
    answer = raw(instant_engine, post("/v1/completions", body, "expect: 100-continue", "connection: close"))
    assert answer.startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n")


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"nonsense\r\n\r\n", b"400"),
        (b"GET /" + b"x" * 70_000, b"400"),
        (b"POST /v1/completions HTTP/1.1\r\ncontent-length: many\r\n\r\n", b"400"),
        (b"POST /v1/completions HTTP/1.1\r\ncontent-length: 3\r\nconnection: close\r\n\r\n{}}", b"400"),
        (b"GET /v1/other HTTP/1.1\r\nconnection: close\r\n\r\n", b"404"),
    ],
)
def test_what_is_not_a_request_is_refused(instant_engine: EngineThread, data: bytes, status: bytes) -> None:
    assert raw(instant_engine, data).startswith(b"HTTP/1.1 " + status)
