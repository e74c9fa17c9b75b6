"""The model client over real HTTP: against the tests' engine, and against raw servers for what that does not do."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest

from jobs.answer import parse_answer
from jobs.outcomes import Attempt, Symptom, Usage
from jobs.prompt import build_messages, response_format
from jobs.spec import ClassificationSpec
from tests.engine.answer import expected_label
from tests.engine.faults import KINDS, Fault, Rule
from tests.engine.process import EngineThread
from tests.engine.profile import EngineProfile
from tests.engine.service import ServiceSettings
from tests.support.canned import STREAM_HEAD, CannedServer, framed, whole
from tests.support.wait import wait_until, wait_until_async
from tickets_batch.errors import SettingsError
from tickets_batch.settings import Pool, Secret
from workers.client import InFlight, ModelClient
from workers.detail import DETAIL_CHARS

SPEC = ClassificationSpec(labels={"account": "logins", "billing": "charges", "shipping": "parcels"})
LABELS = list(SPEC.labels)
SUBJECT = "Lost"
BODY = "Parcel 4711 was sent to 12 Rosemary Lane, and nobody there has ever heard of me."
TICKET = f"{SUBJECT}\n{BODY}"


@pytest.fixture(scope="module")
def running_engine() -> Iterator[EngineThread]:
    with EngineThread(EngineProfile(slots=4).at_speed(50)) as engine:
        yield engine


@pytest.fixture
def engine(running_engine: EngineThread) -> Iterator[EngineThread]:
    running_engine.reset()
    yield running_engine
    running_engine.thaw()
    wait_until(lambda: running_engine.state()["running"] == 0, "the engine's slots to be free")


@asynccontextmanager
async def client_of(
    base_url: str, *, at_once: int = 8, timeout_seconds: float = 10.0, key: Secret | None = None
) -> AsyncIterator[ModelClient]:
    pool = Pool.model_validate(
        {
            "name": "gpu",
            "base_url": base_url,
            "model": "test-model",
            "api_key": key,
            "capacity": {"slots": 4},
            "request_timeout_seconds": timeout_seconds,
        }
    )
    client = ModelClient(pool, at_once=at_once)
    try:
        yield client
    finally:
        await client.aclose()


def ask(client: ModelClient, body: str = BODY, *, max_output_tokens: int = 32, **options: Any) -> Awaitable[Attempt]:
    messages = build_messages(SPEC, SUBJECT, body)
    parse = partial(parse_answer, SPEC)
    return client.classify(messages, response_format(SPEC), max_output_tokens, parse=parse, **options)


def attempt_at(base_url: str, *, timeout_seconds: float = 10.0) -> Attempt:
    """One call by a client of its own."""

    async def call() -> Attempt:
        async with client_of(base_url, timeout_seconds=timeout_seconds) as client:
            return await ask(client)

    return asyncio.run(call())


def attempt_under(engine: EngineThread, fault: Fault, *, timeout_seconds: float = 10.0) -> Attempt:
    engine.set_faults(Rule(fault))
    return attempt_at(engine.base_url, timeout_seconds=timeout_seconds)


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


# A call that works.


def test_an_answer_is_an_attempt_with_a_label_and_what_it_cost(engine: EngineThread) -> None:
    attempt = attempt_at(engine.base_url)
    (row,) = engine.log()
    label = expected_label(TICKET, LABELS)
    assert (attempt.symptom, attempt.label, attempt.detail) == (None, label, "")
    assert json.loads(attempt.raw or "") == {"label": label}
    assert attempt.usage == Usage(row.prompt_tokens, row.output_tokens)
    assert (attempt.pool, attempt.model, attempt.http_status) == ("gpu", "test-model", 200)
    assert attempt.ttft_seconds is not None
    assert 0 < attempt.ttft_seconds <= attempt.seconds
    assert abs(attempt.started_at - datetime.now(UTC)) < timedelta(seconds=30)
    assert (row.outcome, row.stream, row.max_tokens) == ("ok", True, 32)


def test_the_first_token_is_reported_once_while_the_answer_still_comes(engine: EngineThread) -> None:
    engine.set_faults(Rule(Fault("stall", after_tokens=2)))

    async def call() -> tuple[int, Attempt]:
        told: list[float] = []
        loop = asyncio.get_running_loop()
        async with client_of(engine.base_url, timeout_seconds=0.5) as client:
            attempt = await ask(client, on_first_token=lambda: told.append(loop.time()))
        assert loop.time() - told[0] > 0.2
        return len(told), attempt

    told, attempt = asyncio.run(call())
    assert told == 1
    assert attempt.symptom is Symptom.TIMED_OUT


def test_the_request_carries_the_key_and_nothing_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLM_API_KEY", "sk-right")
    monkeypatch.setenv("OPENAI_ORG_ID", "someone")
    with EngineThread(EngineProfile.instant(), ServiceSettings(api_key="sk-right")) as engine:

        async def call() -> Attempt:
            async with client_of(engine.base_url, key=Secret(env="LLM_API_KEY")) as client:
                return await ask(client)

        assert asyncio.run(call()).symptom is None
        (row,) = engine.log()
    assert row.headers.pop("user-agent").startswith("AsyncOpenAI/")
    assert row.headers == {"authorization": "Bearer sk-right"}


def test_without_a_key_none_is_taken_from_the_environment(
    engine: EngineThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-for-another-service")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    assert attempt_at(engine.base_url).symptom is None
    (row,) = engine.log()
    assert "authorization" not in row.headers


def test_proxies_of_the_environment_are_not_used(engine: EngineThread, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "")
    assert attempt_at(engine.base_url).symptom is None


def test_a_base_url_that_is_none_is_a_settings_error() -> None:
    pool = Pool.model_validate(
        {"name": "gpu", "base_url": "http://host:port/v1", "model": "m", "capacity": {"slots": 1}}
    )
    with pytest.raises(SettingsError, match="pool gpu: base_url 'http://host:port/v1' is not a URL"):
        ModelClient(pool, at_once=1)


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


# Every fault of the engine.

EXPECTED: dict[str, tuple[Symptom | None, int | None, str]] = {
    "429": (Symptom.OVERLOADED, 429, "overloaded"),
    "503": (Symptom.OVERLOADED, 503, "overloaded"),
    "500": (Symptom.SERVER_ERROR, 500, "the engine failed"),
    "401": (Symptom.BLOCKED, 401, "set the pool's api_key"),
    "403": (Symptom.BLOCKED, 403, "may not use this model"),
    "404": (Symptom.BLOCKED, 404, "does not serve this model"),
    "400": (Symptom.REFUSED, 400, "refuses this request"),
    "context_too_long": (Symptom.TOO_LONG, 400, "longer than the engine's context"),
    "content_filter": (Symptom.REFUSED, 400, "content filter"),
    "schema_refused": (Symptom.BLOCKED, 400, "refuses the schema"),
    "cut_off": (Symptom.INVALID_OUTPUT, 200, "cut short after"),
    "prose": (Symptom.INVALID_OUTPUT, 200, "not the JSON"),
    "fenced": (None, 200, ""),
    "list": (None, 200, ""),
    "wrong_label": (Symptom.INVALID_OUTPUT, 200, "a label outside the set"),
    "empty": (Symptom.INVALID_OUTPUT, 200, "empty content, finish_reason=stop"),
    "reasoning_only": (Symptom.INVALID_OUTPUT, 200, "empty content, finish_reason=stop, reasoning only"),
    "white_space": (Symptom.INVALID_OUTPUT, 200, "endless white space"),
    "content_filter_answer": (Symptom.REFUSED, 200, "a content filter stopped the answer"),
    "ignore_response_format": (None, 200, ""),
    "drop_before_headers": (Symptom.DISCONNECTED, None, "the connection broke"),
    "drop_mid_stream": (Symptom.DISCONNECTED, 200, "the connection broke"),
    "slow_first_token": (Symptom.TIMED_OUT, 200, "no first token within 0.4 s"),
    "stall": (Symptom.TIMED_OUT, 200, "not done within 0.4 s"),
    "late_abort": (None, 200, ""),
    "missing_usage": (None, 200, ""),
}


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_each_fault_of_an_engine_is_told_by_its_symptom(engine: EngineThread, kind: str) -> None:
    symptom, http_status, words = EXPECTED[kind]
    attempt = attempt_under(engine, Fault(kind, seconds=1.0), timeout_seconds=0.4 if kind in SLOW else 10.0)
    assert (attempt.symptom, attempt.http_status) == (symptom, http_status)
    assert words in attempt.detail
    assert (attempt.label is None) == (symptom is not None)
    assert len(attempt.detail) <= DETAIL_CHARS
    assert "4711" not in attempt.detail
    assert "Rosemary" not in attempt.detail
    wait_until(lambda: len(engine.log()) == 1, "the engine to be done with the call")


SLOW = {"slow_first_token", "stall"}


@pytest.mark.parametrize("kind", ["429", "503"])
@pytest.mark.parametrize("form", ["seconds", "date"])
def test_retry_after_comes_through(engine: EngineThread, kind: str, form: Any) -> None:
    attempt = attempt_under(engine, Fault(kind, retry_after_seconds=30, retry_after_form=form))
    assert attempt.retry_after_seconds is not None
    assert 25 < attempt.retry_after_seconds <= 30  # a date is cut to whole seconds


def test_usage_that_the_engine_does_not_report_is_zero(engine: EngineThread) -> None:
    attempt = attempt_under(engine, Fault("missing_usage"))
    assert attempt.label is not None
    assert attempt.usage == Usage(0, 0)


def test_what_the_model_said_is_kept_bounded(engine: EngineThread) -> None:
    attempt = attempt_under(engine, Fault("wrong_label", label="x" * 5000))
    assert attempt.raw is not None
    assert attempt.raw.startswith('{"label": "xxx')
    assert len(attempt.raw) <= 2000


def test_white_space_is_cut_before_the_cap_is_used_up(engine: EngineThread) -> None:
    engine.set_faults(Rule(Fault("white_space")))

    async def call() -> Attempt:
        async with client_of(engine.base_url) as client:
            return await ask(client, max_output_tokens=4000)

    assert "endless white space" in asyncio.run(call()).detail
    row = wait_until(engine.log, "the engine to notice")[0]
    assert row.output_tokens < 4000


# Time.


@pytest.mark.parametrize("kind", ["slow_first_token", "stall"])
def test_the_deadline_is_total_and_frees_the_engine(engine: EngineThread, kind: str) -> None:
    attempt = attempt_under(engine, Fault(kind, seconds=60.0), timeout_seconds=0.3)
    assert attempt.symptom is Symptom.TIMED_OUT
    assert 0.3 <= attempt.seconds < 2.0
    wait_until(lambda: engine.state()["running"] == 0, "the slot to be free again", timeout_seconds=2.0)


def test_the_deadline_holds_although_bytes_keep_coming() -> None:
    attempt = attempt_against(STREAM_HEAD, for_ever=framed(b": still here\n\n"), timeout=0.3)
    assert (attempt.symptom, attempt.detail) == (Symptom.TIMED_OUT, "no first token within 0.3 s")
    assert attempt.seconds < 2.0


def test_a_server_that_lingers_after_its_answer_holds_nobody_up() -> None:
    attempt = attempt_against(STREAM_HEAD + framed(RIGHT + DONE))
    assert attempt.label == "billing"
    assert attempt.seconds < 5.0


def test_a_connection_that_breaks_after_the_answer_does_it_no_harm() -> None:
    attempt = attempt_against(STREAM_HEAD + framed(RIGHT), close=True)
    assert (attempt.symptom, attempt.label) == (None, "billing")


# A call that is withdrawn.


def withdrawn_when(engine: EngineThread, ready: Callable[[InFlight], object]) -> tuple[Attempt, float]:
    """Cancel a call as soon as `ready`; the attempt it makes and the seconds until it was over."""

    async def call() -> tuple[Attempt, float]:
        loop = asyncio.get_running_loop()
        async with client_of(engine.base_url) as client:
            in_flight = InFlight()
            task = asyncio.ensure_future(ask(client, in_flight=in_flight))
            await wait_until_async(lambda: ready(in_flight), "the call to be where it is to be cancelled")
            began = loop.time()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            return client.withdrawn(in_flight, Symptom.WITHDRAWN, "users came first"), loop.time() - began

    return asyncio.run(call())


def test_a_call_withdrawn_in_the_queue_is_out_of_it_at_once(engine: EngineThread) -> None:
    engine.freeze()
    attempt, seconds = withdrawn_when(engine, lambda _: engine.state()["waiting"] == 1)
    assert seconds < 1.5
    assert (attempt.symptom, attempt.detail) == (Symptom.WITHDRAWN, "users came first")
    assert (attempt.ttft_seconds, attempt.usage, attempt.raw) == (None, Usage(0, 0), None)
    engine.thaw()
    wait_until(lambda: [row.outcome for row in engine.log()] == ["aborted"], "the engine to notice")


def test_a_call_withdrawn_in_its_prefill_frees_the_slot(engine: EngineThread) -> None:
    engine.set_faults(Rule(Fault("slow_first_token", seconds=60.0)))
    attempt, seconds = withdrawn_when(engine, lambda _: engine.state()["running"] == 1)
    assert seconds < 1.5
    assert (attempt.ttft_seconds, attempt.http_status) == (None, 200)
    wait_until(lambda: engine.state()["running"] == 0, "the slot to be free again", timeout_seconds=2.0)


def test_a_call_withdrawn_while_it_streams_tells_what_was_wasted(engine: EngineThread) -> None:
    engine.set_faults(Rule(Fault("stall", after_tokens=3)))
    attempt, seconds = withdrawn_when(engine, lambda call: call.tokens == 3)
    assert seconds < 1.5
    assert attempt.ttft_seconds is not None
    assert attempt.ttft_seconds <= attempt.seconds
    assert attempt.usage == Usage(0, 3)
    wait_until(lambda: engine.state()["running"] == 0, "the slot to be free again", timeout_seconds=2.0)


def test_an_engine_that_notices_late_does_not_hold_up_the_withdrawal(engine: EngineThread) -> None:
    engine.set_faults(Rule(Fault("late_abort", seconds=2.0), text="Parcel"))
    engine.set_profile(step_base_seconds=1.0)
    try:
        _, seconds = withdrawn_when(engine, lambda _: engine.state()["running"] == 1)
    finally:
        engine.set_profile(step_base_seconds=EngineProfile().at_speed(50).step_base_seconds)
    assert seconds < 1.5


def test_a_call_that_was_never_begun_can_be_withdrawn(engine: EngineThread) -> None:
    async def call() -> Attempt:
        async with client_of(engine.base_url) as client:
            return client.withdrawn(InFlight(), Symptom.STOPPING)

    attempt = asyncio.run(call())
    assert (attempt.symptom, attempt.seconds, attempt.usage) == (Symptom.STOPPING, 0.0, Usage())


def test_a_lane_is_free_again_after_every_kind_of_end(engine: EngineThread) -> None:
    async def call() -> None:
        async with client_of(engine.base_url, at_once=1, timeout_seconds=0.3) as client:
            for fault in ["500", "white_space", "drop_before_headers", "drop_mid_stream", "stall", "cut_off"]:
                await ask(client, f"{BODY} [[fault:{fault}]]")
            task = asyncio.ensure_future(ask(client, f"{BODY} [[fault:stall]]"))
            await wait_until_async(lambda: engine.state()["running"] == 1, "the call to be in the engine")
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            assert (await ask(client)).symptom is None

    asyncio.run(call())


@pytest.mark.parametrize("turns", range(3))
def test_a_call_that_is_cancelled_twice_leaves_no_half_closed_connection(engine: EngineThread, turns: int) -> None:
    async def call() -> None:
        async with client_of(engine.base_url, at_once=1, timeout_seconds=2.0) as client:
            in_flight = InFlight()
            task = asyncio.ensure_future(ask(client, f"{BODY} [[fault:stall]]", in_flight=in_flight))
            await wait_until_async(lambda: in_flight.tokens, "the answer to begin")
            task.cancel()
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()  # while the first cancellation closes the connection, after so many turns of the loop
            await asyncio.gather(task, return_exceptions=True)
            await wait_until_async(lambda: engine.state()["running"] == 0, "the slot to be free again")
            assert (await ask(client)).symptom is None

    asyncio.run(call())


# What only a broken or a foreign server does.


def test_a_refused_connection_is_unreachable() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        attempt = attempt_at(f"http://127.0.0.1:{unused.getsockname()[1]}/v1")
    assert attempt.symptom is Symptom.UNREACHABLE
    assert attempt.detail == "no connection to the endpoint: connection refused"
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


def test_a_redirect_is_not_followed(engine: EngineThread) -> None:
    attempt = attempt_against(whole(307, b"", "text/plain", f"location: {engine.base_url}/chat/completions"))
    assert attempt.symptom is Symptom.BLOCKED
    assert f"redirects to {engine.base_url}/chat/completions: set the pool's base_url" in attempt.detail
    assert engine.log() == []


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
            "the stream ended before the answer did (1 tokens in)",
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
