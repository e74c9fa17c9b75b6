"""Callers that take their time, or come in crowds: each is bounded, and an honest caller is served meanwhile."""

import asyncio
import contextlib
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

import gateway.app
import gateway.caller
import gateway.connection
from gateway.connection import TOLD_AT_MOST
from tests.engine.process import EngineThread
from tests.hostile.sockets import closes, connected
from tests.support.canned import STREAM_HEAD, CannedServer, framed
from tests.support.engines import chat_body, post
from tests.support.gateways import ROOT, chat_settings, fetch, http, running, until
from tests.support.valkey import ValkeyServer
from tests.support.wait import wait_until
from tickets_batch.settings import Settings

pytest_plugins = ["tests.support.engine_fixtures"]

SHORT = 0.3  # seconds, in place of tens


@pytest.fixture
def settings(valkey: ValkeyServer, instant_engine: EngineThread) -> Settings:
    return chat_settings(valkey.url, instant_engine.base_url, max_connections=20)


@pytest.fixture
def door(settings: Settings) -> Iterator[str]:
    with running(settings) as address:
        yield address


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody has long for anything."""
    monkeypatch.setattr(gateway.connection, "HEAD_SECONDS", SHORT)
    monkeypatch.setattr(gateway.connection, "STALLED_SECONDS", SHORT)
    monkeypatch.setattr(gateway.caller, "BODY_SECONDS", SHORT)
    monkeypatch.setattr(gateway.app, "BODY_SECONDS", SHORT)


@pytest.mark.usefixtures("hurried")
class TestTime:
    @pytest.mark.parametrize(
        "begun",
        [b"POST", b"POST /v1/chat/completions HTTP/1.1\r\n", b"GET /healthz HTTP/1.1\r\nhost: x\r\n"],
        ids=["half a word", "a line", "half a head"],
    )
    def test_a_head_that_does_not_end_is_given_up(self, door: str, begun: bytes) -> None:
        with connected(door) as slow:
            slow.sendall(begun)
            assert closes(slow).startswith(b"HTTP/1.1 408 ")

    def test_a_connection_on_which_nothing_is_said_is_closed_without_a_word(self, door: str) -> None:
        with connected(door) as silent:
            assert closes(silent) == b""

    def test_one_byte_now_and_then_gains_no_time(self, door: str) -> None:
        with connected(door) as slow:
            slow.sendall(b"GET /healthz HTTP/1.1\r\n")

            def dripped() -> bool:
                with contextlib.suppress(ConnectionError):
                    slow.sendall(b"x: y\r\n")
                    return b"408" in slow.recv(100, socket.MSG_DONTWAIT)
                return True

            def is_over() -> bool:
                try:
                    return dripped()
                except BlockingIOError:
                    return False

            wait_until(is_over, "the slow head to be given up")

    def test_so_is_the_head_of_a_second_request(self, door: str) -> None:
        with connected(door) as slow:
            slow.sendall(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\nGET /hea")
            assert until(slow, b'"status":"ok"')
            slow.sendall(b"lthz HT")
            assert b"HTTP/1.1 408 " in closes(slow)

    @pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/embeddings"])
    def test_a_body_that_does_not_come_is_given_up(self, door: str, path: str) -> None:
        with connected(door) as slow:
            slow.sendall(f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{{".encode())
            assert until(slow, b"\r\n\r\n").startswith(b"HTTP/1.1 408 ")

    def test_a_caller_that_does_not_read_is_cut_off_and_its_permit_given_back(self, valkey: ValkeyServer) -> None:
        flood = framed(b"data: " + b"x" * 60_000 + b"\n\n")

        async def scene() -> None:
            async with CannedServer(STREAM_HEAD, for_ever=flood) as server:
                await asyncio.to_thread(ask_and_not_read, chat_settings(valkey.url, server.base_url))

        def ask_and_not_read(settings: Settings) -> None:
            with running(settings) as address, connected(address) as deaf:
                deaf.sendall(post("/v1/chat/completions", chat_body(4, stream=True)))

                def inside() -> int:
                    return int(http(address, "GET", "/healthz")[1]["pools"]["gpu"]["in_flight"])

                wait_until(lambda: inside() == 1, "the chat to be under way")
                wait_until(lambda: inside() == 0, "its permit to be given back")

        asyncio.run(scene())


class TestCrowds:
    def test_as_many_files_may_be_open_as_there_may_be_callers(self) -> None:
        code = (
            "import resource as r; from tickets_batch.local.open_files import make_room_for, of_gateway\n"
            "r.setrlimit(r.RLIMIT_NOFILE, (300, 600)); make_room_for(of_gateway(100), '100 callers')\n"
            "first = r.getrlimit(r.RLIMIT_NOFILE); make_room_for(of_gateway(1000), '1000 callers')\n"
            "print(first[0], r.getrlimit(r.RLIMIT_NOFILE)[0])"
        )
        argv = [sys.executable, "-c", code]
        ended = subprocess.run(argv, capture_output=True, text=True, check=True, cwd=ROOT)
        assert ended.stdout.split() == ["456", "600"]
        assert "1000 callers need 2256 open files, and 600 are allowed" in ended.stderr

    def test_idle_connections_over_the_limit_are_closed_at_once(self, door: str, settings: Settings) -> None:
        most = settings.gateway.max_connections + TOLD_AT_MOST
        with contextlib.ExitStack() as crowd:
            for _ in range(most):
                crowd.enter_context(connected(door))
            for _ in range(50):
                assert closes(crowd.enter_context(connected(door))) == b""

    @pytest.mark.usefixtures("hurried")
    def test_a_crowd_that_says_nothing_keeps_nobody_out_for_long(self, door: str) -> None:
        with contextlib.ExitStack() as crowd:
            for _ in range(200):
                crowd.enter_context(connected(door))

            def is_served() -> bool:
                try:
                    return fetch(door, "GET", "/healthz")[0] == 200
                except (ConnectionError, OSError):
                    return False

            wait_until(is_served, "an honest caller to be served")

    def test_what_comes_in_while_an_answer_is_made_is_not_hoarded(self, door: str) -> None:
        with connected(door) as eager:
            eager.settimeout(2)
            request = b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n"
            eager.sendall(request * 200)
            heard = b""
            while heard.count(b'"status":"ok"') < 200:
                part = eager.recv(65536)
                assert part
                heard += part
