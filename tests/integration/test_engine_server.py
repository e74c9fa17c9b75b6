"""The test engine over real HTTP: with the OpenAI client as the product uses it, and with bare sockets."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import openai
import pytest
from prometheus_client.parser import text_string_to_metric_families

from scheduler.simulation.engine.profile import EngineProfile
from tests.engine.answer import AnswerSettings, expected_label, label_answer, ticket_hash
from tests.engine.log import decode
from tests.engine.process import CHECKOUT, EngineProcess, EngineThread
from tests.engine.service import ServiceSettings
from tests.support.engines import (
    LABELS,
    SLOW,
    ask,
    chat_body,
    is_running,
    listen,
    raw,
    start,
    ticket_body,
    with_client,
)
from tests.support.wait import wait_until, wait_until_async

pytest_plugins = ["tests.support.engine_fixtures"]


# Answers.


def test_a_ticket_gets_the_label_that_can_be_worked_out_from_its_text(instant_engine: EngineThread) -> None:
    tickets = [f"My parcel number {number} has not come." for number in range(20)]
    for ticket in tickets:
        heard = ask(instant_engine, ticket)
        assert heard.text == label_answer(expected_label(ticket, LABELS))
        assert heard.finish_reason == "stop"
        assert heard.chunks == heard.usage.completion_tokens == -(-len(heard.text.encode()) // 4)
    assert len({row.label for row in instant_engine.log()}) > 1
    assert [row.ticket for row in instant_engine.log()] == [ticket_hash(ticket) for ticket in tickets]


def test_an_answer_that_is_not_streamed_is_the_same(instant_engine: EngineThread) -> None:
    answer = with_client(instant_engine, lambda client: client.chat.completions.create(**ticket_body("Hello")))
    assert answer.choices[0].message.content == ask(instant_engine, "Hello").text
    first, second = instant_engine.log()
    assert (first.stream, second.stream) == (False, True)
    assert answer.usage.prompt_tokens == first.prompt_tokens == second.prompt_tokens


def test_an_oracle_decides_where_it_knows_the_ticket() -> None:
    ticket = "Where is\n my   parcel?"
    wrong = next(label for label in LABELS if label != expected_label(ticket, LABELS))
    settings = ServiceSettings(answer=AnswerSettings(oracle={"Where is my parcel?": wrong}))
    with EngineThread(EngineProfile.instant(), settings) as engine:
        assert json.loads(ask(engine, ticket).text) == {"label": wrong}
        assert json.loads(ask(engine, "Another.").text) == {"label": expected_label("Another.", LABELS)}


def test_a_cap_below_the_answer_cuts_it_off(instant_engine: EngineThread) -> None:
    heard = ask(instant_engine, "Hello", max_tokens=2)
    assert heard.finish_reason == "length"
    assert heard.usage.completion_tokens == 2
    assert label_answer(expected_label("Hello", LABELS)).startswith(heard.text)


def test_chat_gets_as_many_tokens_as_it_asks_for(instant_engine: EngineThread) -> None:
    heard = with_client(instant_engine, lambda client: listen(client, chat_body(100)))
    assert heard.chunks == heard.usage.completion_tokens == 100
    assert heard.finish_reason == "length"
    assert instant_engine.log()[0].klass == "interactive"


def test_answers_can_be_made_longer_than_their_text() -> None:
    settings = ServiceSettings(answer=AnswerSettings(answer_tokens=40, answer_sigma=0.5))
    with EngineThread(EngineProfile.instant(), settings) as engine:
        for number in range(30):
            assert json.loads(ask(engine, f"Ticket {number}", max_tokens=400).text)["label"] in LABELS
        tokens = sorted(row.output_tokens for row in engine.log())
    assert 25 < tokens[15] < 60
    assert tokens[0] < 30 < 50 < tokens[-1]


def test_completions_models_and_health_answer(instant_engine: EngineThread) -> None:
    async def use(client: openai.AsyncOpenAI) -> None:
        whole = await client.completions.create(model="test-model", prompt="Once", max_tokens=8)
        assert whole.usage is not None
        assert whole.usage.completion_tokens == 8
        parts = [
            part.choices[0].text
            async for part in await client.completions.create(
                model="test-model", prompt="Once", max_tokens=8, stream=True
            )
        ]
        assert "".join(parts) == whole.choices[0].text
        assert [model.id async for model in client.models.list()] == ["test-model"]

    with_client(instant_engine, use)
    assert raw(instant_engine, b"GET /health HTTP/1.1\r\nconnection: close\r\n\r\n").startswith(b"HTTP/1.1 200 OK\r\n")


def test_a_shared_prefix_is_reported_as_cached_from_the_second_request_on() -> None:
    with EngineThread(replace(EngineProfile.instant(), prefix_cache_tokens=12)) as engine:
        cached = [ask(engine, text).usage.prompt_tokens_details.cached_tokens for text in ("One", "Two")]
    assert cached == [0, 12]


# Refusals that nobody scripted.


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"model": "other"}, openai.NotFoundError),
        ({"messages": []}, openai.BadRequestError),
        ({"max_tokens": 0}, openai.BadRequestError),
        ({"n": 2}, openai.BadRequestError),
        ({"max_tokens": 40_000}, openai.BadRequestError),
        ({"extra_body": {"priority": 10}}, openai.BadRequestError),
    ],
)
def test_what_a_real_server_refuses_is_refused(
    instant_engine: EngineThread, changes: dict[str, Any], error: type[openai.APIStatusError]
) -> None:
    instant_engine.set_profile(refuses_priority=True)
    with pytest.raises(error):
        ask(instant_engine, "Hello", **changes)


def test_a_key_is_required_where_one_is_set() -> None:
    with EngineThread(EngineProfile.instant(), ServiceSettings(api_key="secret")) as engine:
        with pytest.raises(openai.AuthenticationError):
            with_client(engine, lambda client: listen(client, ticket_body("Hello")), api_key="wrong")
        with_client(engine, lambda client: listen(client, ticket_body("Hello")), api_key="secret")
        assert [row.outcome for row in engine.log()] == ["rejected", "ok"]
        assert engine.log()[1].headers["authorization"] == "Bearer secret"


def test_a_full_queue_answers_429(slow_engine: EngineThread) -> None:
    slow_engine.set_profile(slots=1, max_queue=0)
    with start(slow_engine, chat_body(10_000)):
        wait_until(is_running(slow_engine), "the first request to take the only slot")
        with pytest.raises(openai.RateLimitError) as caught:
            ask(slow_engine, "Hello")
        assert caught.value.response.headers["retry-after"] == "1"


# Order and speed.


def test_no_more_requests_overlap_than_there_are_slots(slow_engine: EngineThread) -> None:
    async def all_at_once(client: openai.AsyncOpenAI) -> None:
        await asyncio.gather(*(listen(client, chat_body(8)) for _ in range(7)))

    with_client(slow_engine, all_at_once)
    rows = slow_engine.log()
    assert [row.outcome for row in rows] == ["ok"] * 7
    for row in rows:
        assert row.started_at is not None
        overlapping = sum((other.started_at or 0) <= row.started_at < (other.ended_at or 0) for other in rows)
        assert overlapping <= SLOW.slots
        assert (row.ended_at or 0) - row.started_at >= 8 * SLOW.step_base_seconds


def test_with_priority_the_higher_number_waits(slow_engine: EngineThread) -> None:
    slow_engine.set_profile(slots=1, policy="priority")
    with start(slow_engine, chat_body(30)):
        wait_until(is_running(slow_engine), "the first request to take the only slot")
        with start(slow_engine, ticket_body("ticket", priority=10)), start(slow_engine, chat_body(2, priority=0)):
            wait_until(lambda: len(slow_engine.log()) == 3, "all three to end")
    assert [row.klass for row in slow_engine.log()] == ["interactive", "interactive", "batch"]


# Clients that go.


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_goes_frees_its_slot(slow_engine: EngineThread, stream: bool) -> None:
    with start(slow_engine, chat_body(10_000, stream=stream)):
        wait_until(is_running(slow_engine), "the request to run")
    left_at = time.time()
    wait_until(is_running(slow_engine, 0), "the slot to be free")
    (row,) = slow_engine.log()
    assert (row.outcome, row.label) == ("aborted", None)
    assert row.ended_at is not None
    assert row.ended_at - left_at < 1.0
    assert row.output_tokens < 1000


def test_a_client_that_goes_while_it_waits_leaves_the_queue(slow_engine: EngineThread) -> None:
    slow_engine.set_profile(slots=1)
    with start(slow_engine, chat_body(10_000)):
        with start(slow_engine, chat_body(10_000)):
            wait_until(lambda: slow_engine.state()["waiting"] == 1, "the second request to wait")
        wait_until(lambda: slow_engine.state()["waiting"] == 0, "the queue to be empty")
        assert slow_engine.state()["running"] == 1
        assert slow_engine.log()[0].started_at is None


def test_closing_a_stream_in_the_client_ends_the_request(slow_engine: EngineThread) -> None:
    async def hang_up(client: openai.AsyncOpenAI) -> None:
        stream = await client.chat.completions.create(**chat_body(10_000), stream=True)
        async for _ in stream:
            break
        await stream.close()
        await wait_until_async(lambda: bool(slow_engine.log()), "the request to end")

    with_client(slow_engine, hang_up)
    assert slow_engine.log()[0].outcome == "aborted"


# What can be seen and steered from outside.


def test_metrics_count_what_runs_what_waits_and_what_has_been(slow_engine: EngineThread) -> None:
    with start(slow_engine, chat_body(10_000)), start(slow_engine, chat_body(10_000)):
        wait_until(is_running(slow_engine, 2), "both slots to be taken")
        with start(slow_engine, chat_body(10_000)):
            wait_until(lambda: slow_engine.metric("vllm:num_requests_waiting") == 1, "one to wait")
            assert slow_engine.metric("vllm:num_requests_running") == 2
            page = slow_engine.metrics()
            assert (
                'vllm:num_requests_waiting_by_reason{engine="0",model_name="test-model",reason="capacity"} 1.0' in page
            )
            assert 0 < slow_engine.metric("vllm:kv_cache_usage_perc") < 1
    wait_until(lambda: len(slow_engine.log()) == 3, "all to end")
    ask(slow_engine, "Hello")
    assert slow_engine.metric("vllm:num_requests_running") == 0
    assert slow_engine.metric("vllm:time_to_first_token_seconds_count") == 3
    assert slow_engine.metric("vllm:request_queue_time_seconds_count") == 3
    assert slow_engine.metric("vllm:request_success_total") == 4


def test_metrics_are_in_the_form_that_prometheus_reads(instant_engine: EngineThread) -> None:
    ask(instant_engine, "Hello")
    families = {family.name: family for family in text_string_to_metric_families(instant_engine.metrics())}
    ttft = families["vllm:time_to_first_token_seconds"]
    assert ttft.type == "histogram"
    buckets = [sample for sample in ttft.samples if sample.name.endswith("_bucket")]
    assert buckets[-1].labels == {"engine": "0", "model_name": "test-model", "le": "+Inf"}
    assert buckets[-1].value == 1
    assert families["vllm:num_requests_running"].type == "gauge"
    assert families["vllm:prompt_tokens"].type == "counter"


def test_metrics_can_go_away_and_come_back(instant_engine: EngineThread) -> None:
    instant_engine.change_settings(metrics_gone=True)
    with pytest.raises(RuntimeError, match="404"):
        instant_engine.metrics()
    instant_engine.change_settings(metrics_gone=False)
    assert "vllm:num_requests_running" in instant_engine.metrics()


def test_a_frozen_engine_takes_requests_and_answers_when_it_thaws(instant_engine: EngineThread) -> None:
    instant_engine.freeze()
    with start(instant_engine, ticket_body("Hello")) as connection:
        wait_until(lambda: instant_engine.state()["waiting"] == 1, "the request to arrive")
        assert instant_engine.state()["frozen"]
        assert instant_engine.log() == []
        instant_engine.thaw()
        assert connection.recv(65536).startswith(b"HTTP/1.1 200 OK\r\n")


def test_a_freeze_can_end_by_itself(instant_engine: EngineThread) -> None:
    frozen_at = time.time()
    instant_engine.freeze(seconds=0.2)
    ask(instant_engine, "Hello")
    (row,) = instant_engine.log()
    assert (row.first_token_at or 0) - frozen_at >= 0.2


def test_what_cannot_be_set_is_named(instant_engine: EngineThread) -> None:
    with pytest.raises(RuntimeError, match="unknown profile field 'slotz'"):
        instant_engine.set_profile(slotz=3)
    with pytest.raises(RuntimeError, match="unknown setting 'colour'"):
        instant_engine.change_settings(colour="red")


# The process.


def test_an_engine_process_that_was_stopped_goes_on_where_it_was() -> None:
    with EngineProcess(SLOW) as engine:
        with start(engine, chat_body(10_000)):
            wait_until(is_running(engine), "the request to run")
            engine.pause()
            stopped_at = time.monotonic()
            wait_until(lambda: time.monotonic() > stopped_at + 1.0, "a second of standing still")
            stood_seconds = time.monotonic() - stopped_at
            engine.resume()
        (row,) = wait_until(engine.log, "the request to be aborted")
    assert row.started_at is not None
    assert row.ended_at is not None
    worked_seconds = row.output_tokens * SLOW.step_base_seconds
    assert worked_seconds <= row.ended_at - row.started_at - stood_seconds + 0.1


def test_the_log_file_outlives_a_killed_engine(tmp_path: Path) -> None:
    log_path = tmp_path / "engine.jsonl"
    with EngineProcess(EngineProfile.instant(), "--log-text", log_path=log_path) as engine:
        ask(engine, "Hello")
        engine.kill()
        with EngineProcess(EngineProfile.instant(), log_path=log_path, port=engine.port) as again:
            assert again.port == engine.port
            ask(again, "Hello again")
    rows = decode(log_path.read_bytes())
    assert [(row.outcome, row.text) for row in rows] == [("ok", "\nHello\n"), ("ok", None)]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_an_engine_process_dies_with_its_parent(number: int) -> None:
    program = (
        "import time; from tests.engine.process import EngineProcess\n"
        "with EngineProcess() as engine:\n"
        "    print(engine.port, flush=True)\n"
        "    time.sleep(60)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", program], cwd=CHECKOUT, stdout=subprocess.PIPE)
    assert parent.stdout is not None
    port = int(parent.stdout.readline())
    assert is_listening(port)
    os.kill(parent.pid, number)
    parent.wait()
    parent.stdout.close()
    wait_until(lambda: not is_listening(port), "the engine to end")


def is_listening(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=10).close()
    except ConnectionRefusedError:
        return False
    return True
