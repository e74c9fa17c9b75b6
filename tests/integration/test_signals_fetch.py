"""Sources over HTTP against servers that mean no well: bounded in time and size, and never led elsewhere."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest

from scheduler.signals import fetch
from scheduler.signals.engine import EngineMetrics
from scheduler.signals.fetch import SignalUnavailable
from scheduler.signals.prometheus import Answers, Prometheus
from scheduler.signals.reading import Reading
from tests.support.canned import STREAM_HEAD, CannedServer, framed, whole
from tests.support.shift import pool_settings
from tickets_batch.settings import EngineSignal, Pool, PrometheusSignal

T = TypeVar("T")
PAGE = b"vllm:num_requests_running 3\nvllm:num_requests_waiting 1\n"


def text(body: bytes) -> bytes:
    return whole(200, body, "text/plain; version=0.0.4")


def against(server: CannedServer, step: Callable[[CannedServer], Awaitable[T]]) -> T:
    async def scene() -> T:
        async with server:
            return await step(server)

    return asyncio.run(scene())


async def read(pool: Pool, url: str | None = None) -> Reading:
    metrics = EngineMetrics(pool, EngineSignal(type="engine", url=url))
    try:
        return await metrics.read()
    finally:
        await metrics.aclose()


def refusal(server: CannedServer) -> str:
    with pytest.raises(SignalUnavailable) as seen:
        against(server, lambda server: read(pool_settings(server.base_url)))
    return str(seen.value).partition("/metrics")[2]


class TestEngineMetrics:
    def test_the_page_is_at_the_root_of_the_base_url(self) -> None:
        server = CannedServer(text(PAGE))
        reading = against(server, lambda server: read(pool_settings(server.base_url)))
        assert (reading.running, reading.waiting) == (3, 1)
        assert server.requests[0].startswith(b"GET /metrics HTTP/1.1")

    def test_a_page_of_something_else_says_what_is_missing(self) -> None:
        said = refusal(CannedServer(text(b"<html>hello</html>")))
        assert said.startswith(": vllm:num_requests_running and vllm:num_requests_waiting missing: start vLLM")

    def test_a_broken_page_says_what_to_set(self) -> None:
        said = refusal(CannedServer(text(b"vllm:num_requests_running{ 3\n")))
        assert said.startswith(": not a page of metrics")
        assert said.endswith("set url to the engine's metrics")

    @pytest.mark.parametrize("status", [404, 500])
    def test_an_error_is_named_with_what_to_do(self, status: int) -> None:
        said = f" answers {status}: start vLLM without --disable-log-stats, or set url"
        assert refusal(CannedServer(whole(status))) == said

    def test_one_that_wants_a_key_says_so(self) -> None:
        said = " answers 401: the pool's api_key is not good for it, or it needs one"
        assert refusal(CannedServer(whole(401))) == said

    def test_it_is_led_nowhere_else(self) -> None:
        async def scene() -> None:
            async with CannedServer(text(PAGE)) as other:
                location = f"location: {other.base_url}"
                async with CannedServer(whole(302, b"", "text/plain", location)) as server:
                    with pytest.raises(SignalUnavailable, match="answers 302"):
                        await read(pool_settings(server.base_url))
                assert other.requests == []

        asyncio.run(scene())

    def test_no_proxy_of_the_environment_is_asked(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
        monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
        assert against(CannedServer(text(PAGE)), lambda server: read(pool_settings(server.base_url))).running == 3

    def test_a_page_without_end_is_left(self) -> None:
        endless = CannedServer(STREAM_HEAD, for_ever=framed(b"# nothing\n" * 5000))
        assert refusal(endless) == " answers more than 4 MB"

    def test_a_server_that_never_answers_is_left(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(fetch, "ANSWER_SECONDS", 0.2)
        assert refusal(CannedServer(b"")) == " does not answer within 0.2 s"

    def test_nobody_listens(self) -> None:
        with pytest.raises(SignalUnavailable, match=r"^http://127.0.0.1:9/metrics cannot be read: "):
            asyncio.run(read(pool_settings("http://127.0.0.1:9/v1")))

    def test_an_engine_without_known_metrics_says_what_to_set(self) -> None:
        with pytest.raises(SignalUnavailable, match=r'^engine = "openai" has no metrics that are known: set engine to'):
            asyncio.run(read(pool_settings("http://127.0.0.1:9/v1", engine="openai")))

    def test_the_key_goes_to_the_pools_own_address_only(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("KEY", "sesame")

        async def scene() -> None:
            async with CannedServer(text(PAGE)) as own, CannedServer(text(PAGE)) as other:
                pool = pool_settings(own.base_url, api_key={"env": "KEY"})
                await read(pool)
                await read(pool, other.base_url)
                assert b"Bearer sesame" in own.requests[0]
                assert b"sesame" not in other.requests[0]

        asyncio.run(scene())


def vector(*values: str) -> bytes:
    series = ",".join(f'{{"metric":{{}},"value":[1796025072.4,"{value}"]}}' for value in values)
    return whole(200, f'{{"status":"success","data":{{"resultType":"vector","result":[{series}]}}}}'.encode())


def asked(answer: bytes | CannedServer, **queries: Any) -> Answers:
    async def step(server: CannedServer) -> Answers:
        url = server.base_url.removesuffix("/v1")
        prometheus = Prometheus(PrometheusSignal.model_validate({"type": "prometheus", "url": url, **queries}))
        try:
            return await prometheus.ask()
        finally:
            await prometheus.aclose()

    return against(CannedServer(answer) if isinstance(answer, bytes) else answer, step)


class TestPrometheus:
    def test_series_of_requests_add_up(self) -> None:
        assert asked(vector("3", "4"), in_flight="sum by (pod) (chat)") == Answers(in_flight=7)

    def test_of_several_times_the_longest_counts(self) -> None:
        assert asked(vector("0.3", "1.5"), ttft="x") == Answers(ttft_seconds=1.5)

    def test_a_scalar_is_a_value_too(self) -> None:
        scalar = whole(200, b'{"status":"success","data":{"resultType":"scalar","result":[1796025072.4,"2"]}}')
        assert asked(scalar, waiting="scalar(x)") == Answers(waiting=2)

    def test_an_empty_result_is_missing_and_not_zero(self) -> None:
        with pytest.raises(SignalUnavailable, match=r"^waiting: the query has no result: sum\(chat\)$"):
            asked(vector(), waiting="sum(chat)")

    def test_a_time_that_is_no_number_is_an_answer_without_anybody(self) -> None:
        assert asked(vector("NaN"), ttft="x") == Answers()

    @pytest.mark.parametrize("value", ["NaN", "-1", "+Inf", "1e300"])
    def test_requests_that_are_no_number_are_none(self, value: str) -> None:
        with pytest.raises(SignalUnavailable, match=r"in_flight: the query answers .* no number of requests"):
            asked(vector(value), in_flight="x")

    def test_its_own_words_for_a_wrong_query(self) -> None:
        wrong = whole(400, b'{"status":"error","errorType":"bad_data","error":"1:5: parse error: unclosed"}')
        with pytest.raises(SignalUnavailable, match="in_flight: Prometheus answers '1:5: parse error: unclosed'"):
            asked(wrong, in_flight="sum(")

    @pytest.mark.parametrize("body", [b"<html>", b"[]", b'{"status":"success","data":{"resultType":"matrix"}}', b"3"])
    def test_something_else_is_no_answer(self, body: bytes) -> None:
        with pytest.raises(SignalUnavailable, match="not as Prometheus does"):
            asked(whole(200, body), in_flight="x")

    def test_a_number_longer_than_any_float_is_no_answer(self) -> None:
        body = b'{"status":"success","data":{"resultType":"scalar","result":[0,%s]}}' % (b"9" * 400)
        with pytest.raises(SignalUnavailable, match="not as Prometheus does"):
            asked(whole(200, body), in_flight="x")

    def test_the_query_and_the_authorization_go_along(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TOKEN", "Bearer sesame")
        server = CannedServer(vector("1"))
        asked(server, in_flight="sum(a + b)", authorization={"env": "TOKEN"})
        assert server.requests[0].startswith(b"GET /api/v1/query?query=sum%28a+%2B+b%29 HTTP/1.1")
        assert b"Authorization: Bearer sesame" in server.requests[0]

    def test_without_anything_to_ask_it_says_what_to_set(self) -> None:
        async def scene() -> None:
            prometheus = Prometheus(PrometheusSignal(type="prometheus"))
            with pytest.raises(SignalUnavailable, match="nothing to ask: set url and one of in_flight"):
                await prometheus.ask()
            await prometheus.aclose()

        asyncio.run(scene())
