"""What goes through the gateway as bytes: answers, requests, authorization, and the paths that are not chat's."""

import asyncio
import json
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.engine.process import EngineThread
from tests.support.canned import STREAM_HEAD, CannedServer, framed, whole
from tests.support.engines import chat_body
from tests.support.gateways import caller, chat_settings, complete, fetch, http, running, send, until
from tests.support.valkey import ValkeyServer
from tests.support.wait import wait_until
from tickets_batch.settings import Secret, Settings

pytest_plugins = ["tests.support.engine_fixtures"]

# What a parser would like to tidy up: comments, other line ends, other fields, half a letter at the end of a chunk.
ODD = [
    b": comment\r\n\r\nevent: x\r\ndata: {\"choices\":[{\"delta\":{\"content\":\"G\xc3",
    b"\xb6\"}}]}\r\rdata:no space\n\n\n\n",
    b"id: 7\ndata: [DONE]\n\n",
]  # fmt: skip


def through(
    valkey: ValkeyServer, answer: bytes, body: bytes, path: str = "/v1/chat/completions", **gateway: Any
) -> Any:
    """What a canned server was sent, and what its answer became on the other side."""

    async def scene() -> tuple[tuple[int, bytes], list[bytes]]:
        async with CannedServer(answer) as server:
            settings = chat_settings(valkey.url, server.base_url, **gateway)
            return await asyncio.to_thread(fetch_through, settings), server.requests

    def fetch_through(settings: Settings) -> tuple[int, bytes]:
        with running(settings) as door:
            return fetch(door, "POST", path, body, **{"X-Mine": "1", "Authorization": "Bearer caller"})

    return asyncio.run(scene())


class TestBytes:
    def test_a_stream_passes_byte_for_byte(self, valkey: ValkeyServer) -> None:
        answer = STREAM_HEAD + b"".join(map(framed, [*ODD, b""]))
        (status, body), _ = through(valkey, answer, json.dumps(chat_body(4, stream=True)).encode())
        assert (status, body) == (200, b"".join(ODD))

    def test_a_body_that_needs_no_cap_passes_byte_for_byte(self, valkey: ValkeyServer) -> None:
        body = b'{ "messages":[ ], "max_tokens" : 5, "temperature": 1.00, "x": "\\u00e9" }'
        _, (request,) = through(valkey, whole(200, b"{}"), body)
        head, _, sent = request.partition(b"\r\n\r\n")
        assert sent == body
        lines = head.lower().split(b"\r\n")
        assert lines[0] == b"post /v1/chat/completions http/1.1"
        assert b"x-mine: 1" in lines
        assert b"authorization: bearer caller" in lines
        assert b"accept-encoding: identity" in lines
        assert sum(line.startswith(b"content-length:") for line in lines) == 1
        assert sum(line.startswith(b"host:") for line in lines) == 1

    def test_the_length_is_right_after_the_cap_was_written_in(self, valkey: ValkeyServer) -> None:
        _, (request,) = through(valkey, whole(200, b"{}"), b'{"messages": []}', max_output_tokens=77)
        assert json.loads(request.partition(b"\r\n\r\n")[2]) == {"messages": [], "max_tokens": 77}

    def test_a_chunk_comes_through_before_the_next_one_is_made(self, valkey: ValkeyServer) -> None:
        async def scene() -> None:
            received = asyncio.Event()

            async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                await reader.readuntil(b"\r\n\r\n")
                writer.write(STREAM_HEAD + framed(b"data: 1\n\n"))
                await received.wait()
                writer.write(framed(b"data: 2\n\n") + framed(b""))
                await writer.drain()
                writer.close()

            server = await asyncio.start_server(serve, "127.0.0.1", 0)
            loop = asyncio.get_running_loop()

            def ask(base_url: str) -> None:
                with (
                    running(chat_settings(valkey.url, base_url)) as door,
                    send(door, chat_body(4, stream=True)) as mine,
                ):
                    until(mine, b"data: 1")
                    loop.call_soon_threadsafe(received.set)
                    until(mine, b"data: 2")

            async with server:
                port = server.sockets[0].getsockname()[1]
                await asyncio.to_thread(ask, f"http://127.0.0.1:{port}/v1")

        asyncio.run(scene())


class TestOtherPaths:
    def test_they_pass_through(self, valkey: ValkeyServer, instant_engine: EngineThread) -> None:
        with running(chat_settings(valkey.url, instant_engine.base_url)) as door:
            with caller(door) as client:
                assert [model.id for model in client.models.list()] == ["test-model"]
            assert fetch(door, "GET", "/health")[0] == 200
            assert http(door, "POST", "/v1/nothing/here", b"x" * 100)[0] == 404

    def test_a_body_passes_through_as_it_comes(self, valkey: ValkeyServer) -> None:
        large = b"x" * 300_000
        (status, body), (request,) = through(
            valkey, whole(201, b"made"), large, "/v1/files?purpose=a%2Fb", max_body_bytes=1024
        )
        assert (status, body) == (201, b"made")
        assert request.startswith(b"POST /v1/files?purpose=a%2Fb HTTP/1.1\r\n")
        assert request.partition(b"\r\n\r\n")[2] == large

    @pytest.mark.parametrize(
        "path", ["/v1/chat/completions/", "/chat/completions", "/v1/chat%2Fcompletions", "/v1/chat/completions?x=1"]
    )
    def test_there_is_no_way_to_the_model_around_admission(
        self, path: str, valkey: ValkeyServer, instant_engine: EngineThread
    ) -> None:
        with running(chat_settings(valkey.url, instant_engine.base_url, max_output_tokens=6)) as door:
            status, _ = http(door, "POST", path, json.dumps(chat_body(4000)).encode())
            assert status == 200
        assert [row.max_tokens for row in instant_engine.log()] == [6]

    @pytest.mark.parametrize(
        "path", ["/v1//chat/completions", "/v1/x/../chat/completions", "/v1/%2e%2e/v1/completions"]
    )
    def test_a_path_that_others_might_read_otherwise_is_refused(
        self, path: str, valkey: ValkeyServer, instant_engine: EngineThread
    ) -> None:
        with running(chat_settings(valkey.url, instant_engine.base_url)) as door:
            assert http(door, "POST", path, json.dumps(chat_body(4)).encode())[0] == 400
        assert instant_engine.log() == []


class TestAuthorization:
    def test_without_keys_the_callers_own_goes_on(self, valkey: ValkeyServer, instant_engine: EngineThread) -> None:
        instant_engine.change_settings(api_key="mine")
        with running(chat_settings(valkey.url, instant_engine.base_url)) as door:
            complete(door, chat_body(4), api_key="mine")
            with pytest.raises(openai.AuthenticationError):
                complete(door, chat_body(4), api_key="other")

    def test_with_keys_the_callers_is_checked_and_the_pools_goes_on(
        self, valkey: ValkeyServer, instant_engine: EngineThread, tmp_path: Path
    ) -> None:
        instant_engine.change_settings(api_key="pool")
        (tmp_path / "keys").write_text("one\ntwo\n")
        (tmp_path / "pool").write_text("pool\n")
        settings = chat_settings(valkey.url, instant_engine.base_url, keys={"file": tmp_path / "keys"})
        pool = settings.pool[0].model_copy(update={"api_key": Secret(file=tmp_path / "pool")})
        with running(settings.model_copy(update={"pool": (pool,)})) as door:
            complete(door, chat_body(4), api_key="two")
            for key in ("pool", "three"):
                with pytest.raises(openai.AuthenticationError) as refused:
                    complete(door, chat_body(4), api_key=key)
                assert refused.value.code == "invalid_api_key"
            assert fetch(door, "GET", "/v1/models")[0] == 401
            assert fetch(door, "GET", "/healthz")[0] == 200
        assert [row.headers["authorization"] for row in instant_engine.log()] == ["Bearer pool"]


class TestPools:
    def test_the_models_name_chooses_and_batchs_own_pool_is_not_chats(
        self, valkey: ValkeyServer, instant_engine: EngineThread, slow_engine: EngineThread
    ) -> None:
        def pool(name: str, engine: EngineThread, model: str, batch_slots: int) -> dict[str, Any]:
            capacity = {"slots": 4, "tokens": 16_000}
            protected = {"batch": {"slots": batch_slots, "tokens": batch_slots * 4000}}
            return {
                "name": name,
                "base_url": engine.base_url,
                "model": model,
                "capacity": capacity,
                "protected": protected,
            }

        pools = [
            pool("night", slow_engine, "test-model", 4),
            pool("first", instant_engine, "first-model", 1),
            pool("second", slow_engine, "second-model", 1),
        ]
        settings = Settings(redis_url=valkey.url, pool=pools, gateway={"listen": "127.0.0.1:0"})
        with running(settings) as door:
            http(door, "POST", "/v1/chat/completions", json.dumps(chat_body(4, model="second-model")).encode())
            wait_until(slow_engine.log, "the second pool's engine to be asked")
            assert instant_engine.log() == []
            http(door, "POST", "/v1/chat/completions", json.dumps(chat_body(4, model="test-model")).encode())
            assert len(instant_engine.log()) == 1
            assert len(slow_engine.log()) == 1
