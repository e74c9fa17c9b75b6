"""Chat through the gateway: what comes through, what is capped, what is refused, and what stops when a caller goes."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import ExitStack

import openai
import pytest

from scheduler.permit import Ask, Kind, Permit, PublishedLimit, Standing
from tests.engine.faults import Fault, Rule
from tests.engine.process import EngineThread
from tests.support.engines import chat_body
from tests.support.gateways import (
    caller,
    chat_settings,
    complete,
    http,
    ledger_of,
    metric,
    running,
    send,
    snapshot,
    until,
)
from tests.support.valkey import ValkeyServer
from tests.support.wait import wait_until
from tickets_batch.settings import Settings

pytest_plugins = ["tests.support.engine_fixtures"]

LONG = chat_body(10_000, stream=True)


@pytest.fixture
def settings(valkey: ValkeyServer, slow_engine: EngineThread) -> Settings:
    """Four slots, of which chat may have three; answers of up to 10,000 tokens."""
    slow_engine.set_profile(slots=4)
    return chat_settings(valkey.url, slow_engine.base_url, tokens=80_000, max_output_tokens=10_000)


@pytest.fixture
def door(settings: Settings) -> Iterator[str]:
    with running(settings) as address:
        yield address


WAITING = 'tickets_batch_gateway_waiting{pool="gpu"}'


def waiting_for(settings: Settings, wait_ms: int) -> Settings:
    """The same with another time that chat may wait for room."""
    return settings.model_copy(update={"gateway": settings.gateway.model_copy(update={"wait_ms": wait_ms})})


class TestAnswers:
    def test_the_openai_client_gets_what_it_would_get_from_the_model(
        self, door: str, slow_engine: EngineThread
    ) -> None:
        said = []
        for address in (door, slow_engine.address):
            with caller(address) as client:
                whole = client.chat.completions.create(**chat_body(8))
                text = client.completions.create(model="test-model", prompt="Once", max_tokens=4)
                chunks = [chunk.choices for chunk in client.chat.completions.create(**chat_body(8), stream=True)]
                said.append((whole.choices, whole.usage, text.choices, text.usage, chunks))
        assert said[0] == said[1]
        assert len(said[0][-1]) > 2

    def test_a_chunk_arrives_while_the_engine_stands_still_behind_it(
        self, door: str, settings: Settings, slow_engine: EngineThread
    ) -> None:
        with send(door, LONG) as connection:
            until(connection, b'"content":"t')
            slow_engine.freeze()
            assert slow_engine.busy() == 1
            wait_until(lambda: snapshot(settings).first_tokens == 1, "the first token to be told")
            wait_until(lambda: snapshot(settings).interactive_waiting == 0, "nobody to wait for a first token")

    def test_the_head_of_a_stream_comes_before_its_first_token(
        self, door: str, settings: Settings, slow_engine: EngineThread
    ) -> None:
        slow_engine.freeze()
        with send(door, LONG) as connection:
            assert b"200" in until(connection, b"\r\n\r\n")
            assert snapshot(settings).interactive_waiting == 1

    def test_many_at_once_all_get_theirs_and_give_their_room_back(self, door: str, settings: Settings) -> None:
        async def crowd() -> list[str]:
            async with openai.AsyncOpenAI(base_url=f"{door}/v1", api_key="x", max_retries=20, timeout=60) as client:

                async def one() -> str:
                    return str((await client.chat.completions.create(**chat_body(4))).choices[0].finish_reason)

                return await asyncio.gather(*(one() for _ in range(20)))

        assert set(asyncio.run(crowd())) == {"length"}
        wait_until(lambda: snapshot(settings).interactive.slots == 0, "all room to be given back")
        assert metric(door, 'tickets_batch_gateway_requests_total{outcome="answered"}') == 20

    def test_the_engines_counts_correct_the_estimate(self, door: str, settings: Settings) -> None:
        body = chat_body(10_000, messages=[{"role": "user", "content": "word " * 800}], stream=True)

        def booked() -> int:
            with send(door, body) as chat:
                until(chat, b'"content":"t')
                tokens = snapshot(settings).interactive.tokens
            wait_until(lambda: snapshot(settings).interactive.slots == 0, "its room to be given back")
            return tokens - 10_000

        assert booked() == round(4016 / 4 * 1.25)
        for _ in range(10):
            complete(door, body | {"max_tokens": 1, "stream": False})
        assert 990 <= booked() <= 1010  # the engine counts a token for every four bytes


class TestBounds:
    def test_answers_are_capped(self, valkey: ValkeyServer, slow_engine: EngineThread) -> None:
        with running(chat_settings(valkey.url, slow_engine.base_url, max_output_tokens=6)) as door:
            for asked in ({}, {"max_tokens": 7}, {"max_completion_tokens": 500}, {"max_tokens": 3}):
                complete(door, {"model": "test-model", "messages": [{"role": "user", "content": "Hi"}]} | asked)
        assert [row.max_tokens for row in slow_engine.log()] == [6, 6, 6, 3]

    def test_what_never_fits_is_a_context_error(self, door: str, slow_engine: EngineThread) -> None:
        messages = [{"role": "user", "content": "word " * 50_000}]
        with pytest.raises(openai.BadRequestError) as refused:
            complete(door, chat_body(10, messages=messages))
        assert refused.value.code == "context_length_exceeded"
        assert slow_engine.log() == []

    def test_a_body_over_the_limit_is_not_read(self, valkey: ValkeyServer, slow_engine: EngineThread) -> None:
        with running(chat_settings(valkey.url, slow_engine.base_url, max_body_bytes=2048)) as door:
            for headers in ({"Content-Length": "2049"}, {"Transfer-Encoding": "chunked"}):
                encoded = b"801\r\n" + b" " * 2049 + b"\r\n0\r\n\r\n" if "Transfer-Encoding" in headers else b" " * 2049
                status, answer = http(door, "POST", "/v1/chat/completions", encoded, **headers)
                assert (status, answer["error"]["code"]) == (413, "request_too_large")

    def test_there_are_so_many_connections_and_no_more(self, valkey: ValkeyServer, slow_engine: EngineThread) -> None:
        with (
            running(chat_settings(valkey.url, slow_engine.base_url, max_connections=2)) as door,
            ExitStack() as connections,
        ):
            for status in (b"200", b"200", b"503"):
                chat = connections.enter_context(send(door, LONG))
                assert status in until(chat, b"\r\n\r\n")

    def test_what_is_no_json_is_said_to_be_none(self, door: str) -> None:
        status, answer = http(door, "POST", "/v1/chat/completions", b"{")
        assert (status, answer["error"]["type"]) == (400, "invalid_request_error")


class TestRefusal:
    def test_a_full_pool_is_a_rate_limit_with_a_time_to_come_again(
        self, door: str, settings: Settings, slow_engine: EngineThread
    ) -> None:
        running_chats = [send(door, LONG) for _ in range(3)]
        wait_until(lambda: slow_engine.busy() == 3, "the chat's share to be in use")
        with pytest.raises(openai.RateLimitError) as refused:
            complete(door, chat_body(4))
        headers = refused.value.response.headers
        assert 500 <= int(headers["retry-after-ms"]) <= 2500
        assert int(headers["retry-after"]) in (1, 2, 3)
        assert refused.value.code == "rate_limit_exceeded"
        assert slow_engine.busy() == 3
        assert metric(door, 'tickets_batch_gateway_requests_total{outcome="refused"}') == 1
        wait_until(lambda: snapshot(settings).refused == 1, "the refusal to be counted once, however often it asked")
        for chat in running_chats:
            chat.close()

    def test_room_that_comes_free_meanwhile_is_used(self, settings: Settings, slow_engine: EngineThread) -> None:
        patient = waiting_for(settings, 5000)
        with running(patient) as door:
            first, *others = [send(door, LONG) for _ in range(3)]
            wait_until(lambda: slow_engine.busy() == 3, "the chat's share to be in use")
            with send(door, chat_body(4)) as waiting:
                wait_until(lambda: metric(door, WAITING) == 1, "it to wait")
                first.close()
                assert b"200 OK" in until(waiting, b"\r\n\r\n")
            for chat in others:
                chat.close()

    def test_a_caller_that_goes_while_it_waits_takes_no_room(
        self, settings: Settings, slow_engine: EngineThread
    ) -> None:
        patient = waiting_for(settings, 5000)
        with running(patient) as door:
            chats = [send(door, LONG) for _ in range(3)]
            wait_until(lambda: slow_engine.busy() == 3, "the chat's share to be in use")
            waiting = send(door, LONG)
            wait_until(lambda: metric(door, WAITING) == 1, "it to wait")
            waiting.close()
            gone = 'tickets_batch_gateway_requests_total{outcome="caller_gone"}'
            wait_until(lambda: metric(door, gone) == 1, "the gateway to notice")
            for chat in chats:
                chat.close()
            wait_until(lambda: snapshot(patient).interactive.slots == 0, "all room to be given back")
            wait_until(lambda: slow_engine.busy() == 0, "the engine to be free")
            assert len(slow_engine.log()) == 3

    def test_batch_that_borrows_gives_way(self, door: str, settings: Settings) -> None:
        async def scene() -> None:
            async with ledger_of(settings) as ledger:
                await ledger.found()
                most = ledger.capacity.most_batch
                await ledger.publish(PublishedLimit(most, most.tokens), ttl_seconds=60, leader_epoch=1)
                held = [await ledger.acquire(Kind.BATCH, Ask(400, 100)) for _ in range(4)]
                permits = [permit for permit in held if isinstance(permit, Permit)]
                assert len(permits) == 4
                answer = await asyncio.to_thread(lambda: complete(door, chat_body(4)))
                assert answer.choices[0].finish_reason == "length"
                assert Standing.REVOKED in (await ledger.renew(permits)).values()

        asyncio.run(scene())


class TestCallerGoes:
    @pytest.mark.parametrize("moment", ["queued", "before_first_token", "streaming", "whole"])
    def test_the_engine_stops_at_any_moment(
        self, moment: str, door: str, settings: Settings, slow_engine: EngineThread
    ) -> None:
        others = []
        if moment == "queued":
            slow_engine.set_profile(slots=1)
            others.append(send(door, LONG))
            wait_until(lambda: slow_engine.state()["running"] == 1, "the only slot to be in use")
        if moment == "before_first_token":
            slow_engine.set_faults(Rule(Fault("slow_first_token", seconds=60)))
        connection = send(door, chat_body(10_000) if moment == "whole" else LONG)
        if moment == "streaming":
            until(connection, b'"content":"t')
        wait_until(lambda: slow_engine.busy() == 1 + len(others), "the engine to have it")
        wait_until(lambda: snapshot(settings).interactive.slots == 1 + len(others), "it to be counted")
        connection.close()
        rows = wait_until(slow_engine.log, "the engine to be done with it")
        assert [row.outcome for row in rows] == ["aborted"]
        wait_until(lambda: snapshot(settings).interactive.slots == len(others), "its room to be given back")
        for other in others:
            other.close()


class TestUpstream:
    def test_a_model_server_that_is_not_there_is_one_line(self, valkey: ValkeyServer) -> None:
        with running(chat_settings(valkey.url, "http://127.0.0.1:9/v1")) as door:
            status, answer = http(door, "POST", "/v1/chat/completions", json.dumps(chat_body(4)).encode())
            assert (status, answer["error"]["code"]) == (502, "upstream_unreachable")
            assert "\n" not in answer["error"]["message"]
            assert http(door, "GET", "/v1/models")[0] == 502

    def test_an_answer_that_is_cut_short_is_cut_short_for_the_caller(
        self, door: str, settings: Settings, slow_engine: EngineThread
    ) -> None:
        slow_engine.set_faults(Rule(Fault("drop_mid_stream", after_tokens=3)))
        with caller(door) as client, pytest.raises(openai.APIConnectionError):
            list(client.chat.completions.create(**LONG))
        wait_until(lambda: snapshot(settings).interactive.slots == 0, "its room to be given back")
        assert metric(door, 'tickets_batch_gateway_requests_total{outcome="upstream_failed"}') == 1

    def test_the_engines_own_errors_come_through(self, door: str, slow_engine: EngineThread) -> None:
        slow_engine.set_faults(Rule(Fault("429", retry_after_seconds=7)))
        with pytest.raises(openai.RateLimitError) as refused:
            complete(door, chat_body(4))
        assert refused.value.response.headers["retry-after"] == "7"
        slow_engine.set_faults()
        with pytest.raises(openai.NotFoundError):
            complete(door, chat_body(4, model="other"))
