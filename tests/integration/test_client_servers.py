"""The model client against raw servers: what only a broken or a foreign server does."""

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from jobs.outcomes import Attempt, Symptom
from tests.support.calls import TICKET, ask, attempt_at, client_of
from tests.support.canned import CERTIFICATE, STREAM_HEAD, CannedServer, framed, whole
from tests.support.wait import wait_until_async
from tickets_batch.settings import Secret
from workers.client import AFTER_END_SECONDS


def at_server(server: CannedServer, call: Callable[[CannedServer], Awaitable[Attempt]]) -> Attempt:
    async def run() -> Attempt:
        async with server:
            return await call(server)

    return asyncio.run(run())


def attempt_against(answer: bytes, *, for_ever: bytes = b"", close: bool = False, timeout: float = 10.0) -> Attempt:
    """One call to a server that answers with these bytes."""

    async def call(server: CannedServer) -> Attempt:
        async with client_of(server.base_url, timeout_seconds=timeout) as client:
            return await ask(client)

    return at_server(CannedServer(answer, for_ever=for_ever, close=close), call)


def event(content: str | None = None, **choice: Any) -> bytes:
    delta = {} if content is None else {"content": content}
    return b"data: %b\n\n" % json.dumps({"choices": [{"index": 0, "delta": delta, **choice}]}).encode()


RIGHT = event('{"label": "billing"}') + event(finish_reason="stop")
DONE = b"data: [DONE]\n\n"


def test_connections_are_kept_and_bounded() -> None:
    async def call(server: CannedServer) -> Attempt:
        async with client_of(server.base_url, at_once=4) as client:
            first = await ask(client)
            for _ in range(5):
                await ask(client)
            assert server.connections == 1
            await asyncio.gather(*(ask(client) for _ in range(50)))
            assert server.connections == 4
            assert len(server.requests) == 56
        await wait_until_async(lambda: server.open_connections == 0, "the connections to be closed")
        return first

    served = at_server(CannedServer(STREAM_HEAD + framed(RIGHT + DONE) + framed(b"")), call)
    assert served.label == "billing"


def test_a_first_token_that_came_with_the_whole_answer_is_not_reported() -> None:
    told: list[bool] = []

    async def call(server: CannedServer) -> Attempt:
        async with client_of(server.base_url) as client:
            return await ask(client, on_first_token=lambda: told.append(True))

    pieces = (event('{"label": "billing"}'), event(finish_reason="stop"), DONE, b"")
    attempt = at_server(CannedServer(STREAM_HEAD + b"".join(map(framed, pieces))), call)
    assert (attempt.label, told) == ("billing", [])
    assert attempt.ttft_seconds is not None


def test_the_deadline_holds_although_bytes_keep_coming() -> None:
    attempt = attempt_against(STREAM_HEAD, for_ever=framed(b": still here\n\n"), timeout=0.3)
    assert (attempt.symptom, attempt.detail) == (Symptom.TIMED_OUT, "no first token within 0.3 s")
    assert attempt.seconds < 2.0


def test_a_server_that_lingers_after_its_answer_holds_nobody_up() -> None:
    attempt = attempt_against(STREAM_HEAD + framed(RIGHT + DONE))
    assert attempt.label == "billing"
    assert attempt.seconds < 5.0


@pytest.mark.parametrize("timeout", [0.3, 10.0])
def test_a_server_that_goes_on_after_its_end_holds_nobody_up(timeout: float) -> None:
    async def call(server: CannedServer) -> Attempt:
        async with asyncio.timeout(20), client_of(server.base_url, timeout_seconds=timeout) as client:
            return await ask(client)

    server = CannedServer(STREAM_HEAD + framed(RIGHT + DONE), for_ever=framed(b": still here\n\n"))
    attempt = at_server(server, call)
    assert (attempt.symptom, attempt.label) == (None, "billing")
    assert attempt.seconds < min(timeout, AFTER_END_SECONDS) + 0.6


def test_a_connection_that_breaks_after_the_answer_does_it_no_harm() -> None:
    attempt = attempt_against(STREAM_HEAD + framed(RIGHT), close=True)
    assert (attempt.symptom, attempt.label) == (None, "billing")


def test_a_refused_connection_is_unreachable() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        base_url = f"http://127.0.0.1:{unused.getsockname()[1]}/v1"
        attempt = attempt_at(base_url)
    assert attempt.symptom is Symptom.UNREACHABLE
    assert attempt.detail == (
        f"no connection to the endpoint: check the pool's base_url, {base_url}, and that its engine runs: "
        "connection refused"
    )
    assert attempt.http_status is None


def test_tls_to_a_server_without_it_is_unreachable() -> None:
    def answer_in_plain(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(whole(400, b"The plain HTTP request was sent to HTTPS port"))
        writer.close()

    async def call() -> Attempt:
        async with await asyncio.start_server(answer_in_plain, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            async with client_of(f"https://127.0.0.1:{port}/v1") as client:
                return await ask(client)

    attempt = asyncio.run(call())
    assert attempt.symptom is Symptom.UNREACHABLE
    assert "TLS" in attempt.detail


def tls_attempt() -> Attempt:
    async def call(server: CannedServer) -> Attempt:
        async with client_of(server.base_url) as client:
            return await ask(client)

    return at_server(CannedServer(STREAM_HEAD + framed(RIGHT + DONE) + framed(b""), encrypted=True), call)


def test_a_certificate_that_nobody_vouches_for_is_not_accepted() -> None:
    attempt = tls_attempt()
    assert attempt.symptom is Symptom.UNREACHABLE
    assert attempt.detail.endswith(", and that its engine runs: TLS: self-signed certificate")


def test_a_certificate_of_ones_own_authority_is_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATE))
    assert tls_attempt().label == "billing"


def test_a_redirect_is_not_followed() -> None:
    async def call(elsewhere: CannedServer) -> Attempt:
        url = f"{elsewhere.base_url}/chat/completions"
        redirect = CannedServer(whole(307, b"", "text/plain", f"location: {url}?key=secret"))
        async with redirect, client_of(redirect.base_url) as client:
            attempt = await ask(client)
        what = f"the endpoint redirects to {url}: set the pool's base_url to where the engine is"
        assert attempt.detail == f"HTTP 307: {what}"
        assert elsewhere.requests == []
        return attempt

    attempt = at_server(CannedServer(STREAM_HEAD + framed(RIGHT + DONE) + framed(b"")), call)
    assert attempt.symptom is Symptom.BLOCKED


@pytest.mark.parametrize(
    ("answer", "symptom", "detail"),
    [
        (
            whole(200, b"<html>Welcome</html>", "text/html"),
            Symptom.BLOCKED,
            "HTTP 200: a web page answers instead of an engine: check the pool's base_url",
        ),
        (
            whole(200, b'{"choices": [{"message": {"content": "billing"}}]}'),
            Symptom.BLOCKED,
            "HTTP 200: the endpoint does not stream: it ignores stream=true",
        ),
        (
            whole(204, b"", "text/plain"),
            Symptom.INVALID_OUTPUT,
            "HTTP 204: the answer is no event stream but text/plain",
        ),
        (whole(502, b"<html>Bad Gateway</html>", "text/html"), Symptom.SERVER_ERROR, "HTTP 502: the engine failed"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", Symptom.DISCONNECTED, "the connection broke"),
        (b"HTTP/1.1 200 OK\r\ncontent-", Symptom.DISCONNECTED, "the connection broke"),
        (STREAM_HEAD, Symptom.DISCONNECTED, "the connection broke"),
        (STREAM_HEAD + b"zz\r\n", Symptom.DISCONNECTED, "the connection broke"),
        (
            STREAM_HEAD + framed(b""),
            Symptom.DISCONNECTED,
            "the stream ended before the answer did (0 tokens in)",
        ),
        (
            STREAM_HEAD + framed(event('{"label": "billing"}')) + framed(b""),
            Symptom.DISCONNECTED,
            "the stream ended before the answer did (1 token in)",
        ),
        (
            STREAM_HEAD + framed(b"data: {not json}\n\n") + framed(b""),
            Symptom.INVALID_OUTPUT,
            "a chunk of the stream is not JSON",
        ),
        (
            STREAM_HEAD + framed(event("{") + b'data: {"error": {"code": 500, "message": "engine died"}}\n\n'),
            Symptom.SERVER_ERROR,
            "HTTP 500: the engine failed (engine died)",
        ),
        (
            STREAM_HEAD + framed(b'data: {"error": {"code": 400, "message": "context length exceeded"}}\n\n'),
            Symptom.TOO_LONG,
            "HTTP 400: longer than the engine's context (context length exceeded)",
        ),
    ],
)
def test_what_is_no_stream_is_told_by_its_symptom(answer: bytes, symptom: Symptom, detail: str) -> None:
    attempt = attempt_against(answer, close=True)
    assert (attempt.symptom, attempt.detail) == (symptom, detail)


@pytest.mark.parametrize(
    "ending",
    [b"\n\n", b"\n", b"", b"\r\n\r\n"],
)
def test_a_stream_may_end_without_its_last_line_end(ending: bytes) -> None:
    last = event(finish_reason="stop").rstrip() + ending
    attempt = attempt_against(STREAM_HEAD + framed(event('{"label": "billing"}')) + framed(last) + framed(b""))
    assert attempt.label == "billing"


@pytest.mark.parametrize(
    ("answer", "for_ever", "words"),
    [
        (STREAM_HEAD, framed(event(" ")), "endless white space, cut after"),
        (STREAM_HEAD, framed(event("x" * 1000)), "longer than 65536 characters"),
        (STREAM_HEAD, framed(b"x" * 10_000), "an event is longer than"),
        (STREAM_HEAD, framed(b": ping\n\n" * 10_000), "the stream is longer than"),
    ],
    ids=["white space", "text", "event", "stream"],
)
def test_an_endless_answer_is_cut_and_its_connection_closed(answer: bytes, for_ever: bytes, words: str) -> None:
    async def call(server: CannedServer) -> Attempt:
        async with client_of(server.base_url) as client:
            attempt = await ask(client)
            await wait_until_async(lambda: server.open_connections == 0, "the connection to be closed")
            return attempt

    attempt = at_server(CannedServer(answer, for_ever=for_ever), call)
    assert attempt.symptom is Symptom.INVALID_OUTPUT
    assert words in attempt.detail


def test_an_endless_error_page_is_not_read_to_its_end() -> None:
    head = b"HTTP/1.1 500 Internal Server Error\r\ncontent-type: text/html\r\ntransfer-encoding: chunked\r\n\r\n"
    attempt = attempt_against(head, for_ever=framed(b"<p>" * 1000))
    assert (attempt.symptom, attempt.detail) == (Symptom.SERVER_ERROR, "HTTP 500: the engine failed")
    assert attempt.seconds < 5.0


def test_an_error_that_quotes_the_ticket_and_the_key_is_cleaned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLM_API_KEY", "sk-live-0123456789")
    said = {"error": {"message": f"sk-live-0123456789 sent {TICKET!r}", "code": 400}}

    async def call(server: CannedServer) -> Attempt:
        async with client_of(server.base_url, key=Secret(env="LLM_API_KEY")) as client:
            return await ask(client)

    attempt = at_server(CannedServer(whole(400, json.dumps(said).encode())), call)
    assert attempt.detail.startswith("HTTP 400: the engine refuses this request (*** sen")
    assert "4711" not in attempt.detail
    assert "Rosemary" not in attempt.detail
