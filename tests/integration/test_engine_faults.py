"""Every scripted fault of the test engine, over real HTTP."""

import json
import time
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.engine.answer import expected_label, label_answer
from tests.engine.faults import KINDS, Fault, Rule
from tests.engine.process import EngineHandle, EngineThread
from tests.support.engines import (
    LABELS,
    Heard,
    ask,
    chat_body,
    is_running,
    post,
    raw,
    start,
    ticket_body,
    with_client,
)
from tests.support.wait import wait_until

pytest_plugins = ["tests.support.engine_fixtures"]


def refused(engine: EngineHandle, **details: Any) -> openai.APIStatusError:
    engine.set_faults(Rule(Fault(**details)))
    with pytest.raises(openai.APIStatusError) as caught:
        ask(engine, "Hello")
    (row,) = engine.log()
    assert (row.outcome, row.fault, row.label) == (f"fault:{details['kind']}", details["kind"], None)
    assert row.status == caught.value.status_code
    return caught.value


@pytest.mark.parametrize(
    ("kind", "status", "code"),
    [
        ("429", 429, "429"),
        ("503", 503, "503"),
        ("500", 500, "500"),
        ("401", 401, None),
        ("403", 403, "forbidden"),
        ("404", 404, "404"),
        ("400", 400, "400"),
        ("content_filter", 400, "content_filter"),
        ("schema_refused", 400, None),
        ("context_too_long", 400, "400"),
    ],
)
def test_a_scripted_refusal_has_its_status_and_code(
    instant_engine: EngineThread, kind: str, status: int, code: str | None
) -> None:
    error = refused(instant_engine, kind=kind)
    assert (error.status_code, error.code) == (status, code)


def test_a_429_says_when_to_come_back_in_seconds(instant_engine: EngineThread) -> None:
    assert refused(instant_engine, kind="429", retry_after_seconds=1.5).response.headers["retry-after"] == "1.5"


def test_a_503_says_when_to_come_back_as_a_date(instant_engine: EngineThread) -> None:
    error = refused(instant_engine, kind="503", retry_after_seconds=30, retry_after_form="date")
    when = parsedate_to_datetime(error.response.headers["retry-after"])
    assert 25 < (when - datetime.now(UTC)).total_seconds() <= 30


def test_a_context_too_long_comes_in_the_shapes_of_vllm_and_openai(instant_engine: EngineThread) -> None:
    assert refused(instant_engine, kind="context_too_long").type == "BadRequestError"
    instant_engine.reset()
    error = refused(instant_engine, kind="context_too_long", shape="openai")
    assert (error.code, error.param) == ("context_length_exceeded", "messages")
    assert "maximum context length" in error.message


@pytest.mark.parametrize(
    ("kind", "text", "finish_reason"),
    [
        ("cut_off", '{{"labe', "length"),
        ("prose", "I would say that this is about {label}.", "stop"),
        ("fenced", '```json\n{{"label": "{label}"}}\n```', "stop"),
        ("list", '["{label}"]', "stop"),
        ("wrong_label", '{{"label": "not one of the labels"}}', "stop"),
        ("empty", "", "stop"),
        ("reasoning_only", "", "stop"),
        ("content_filter_answer", "", "content_filter"),
        ("ignore_response_format", "{upper}.", "stop"),
    ],
)
@pytest.mark.parametrize("stream", [True, False])
def test_a_wrong_answer_is_what_its_name_says(
    instant_engine: EngineThread, kind: str, text: str, finish_reason: str, stream: bool
) -> None:
    instant_engine.set_faults(Rule(Fault(kind)))
    label = expected_label("Hello", LABELS)
    said = text.format(label=label, upper=label.upper())
    if stream:
        heard = ask(instant_engine, "Hello")
    else:
        answer = with_client(instant_engine, lambda client: client.chat.completions.create(**ticket_body("Hello")))
        message = answer.choices[0].message
        reasoning = getattr(message, "reasoning_content", "")
        heard = Heard(message.content, reasoning=reasoning, finish_reason=answer.choices[0].finish_reason)
    assert heard.finish_reason == finish_reason
    if kind == "cut_off":
        assert heard.text == label_answer(label)[: len(heard.text)] != label_answer(label)
        assert heard.text.startswith(said)
    else:
        assert heard.text == said
    assert bool(heard.reasoning) == (kind == "reasoning_only")
    assert instant_engine.log()[0].outcome == f"fault:{kind}"


def test_white_space_goes_on_until_the_cap(instant_engine: EngineThread) -> None:
    instant_engine.set_faults(Rule(Fault("white_space")))
    heard = ask(instant_engine, "Hello", max_tokens=200)
    assert heard.finish_reason == "length"
    assert heard.usage.completion_tokens == 200
    assert heard.text[0] == "{"
    assert heard.text[1:].isspace()


def test_a_wrong_label_can_be_chosen(instant_engine: EngineThread) -> None:
    instant_engine.set_faults(Rule(Fault("wrong_label", label="BILLING ")))
    assert json.loads(ask(instant_engine, "Hello").text) == {"label": "BILLING "}


@pytest.mark.parametrize("stream", [True, False])
def test_usage_can_be_missing(instant_engine: EngineThread, stream: bool) -> None:
    instant_engine.set_faults(Rule(Fault("missing_usage")))
    if stream:
        assert ask(instant_engine, "Hello").usage is None
    else:
        answer = with_client(instant_engine, lambda client: client.chat.completions.create(**ticket_body("Hello")))
        assert answer.usage is None
    (row,) = instant_engine.log()
    assert (row.outcome, row.fault) == ("ok", "missing_usage")


def test_a_connection_can_drop_before_the_headers(instant_engine: EngineThread) -> None:
    instant_engine.set_faults(Rule(Fault("drop_before_headers")))
    with pytest.raises(openai.APIConnectionError):
        ask(instant_engine, "Hello")
    (row,) = instant_engine.log()
    assert (row.outcome, row.status) == ("fault:drop_before_headers", None)


def test_a_connection_can_drop_in_the_middle_of_a_stream(slow_engine: EngineThread) -> None:
    slow_engine.set_faults(Rule(Fault("drop_mid_stream", after_tokens=3)))
    answer = raw(slow_engine, post("/v1/chat/completions", chat_body(10_000, stream=True)))
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert answer.count(b"data: ") == 1 + 3
    (row,) = wait_until(slow_engine.log, "the request to end")
    assert row.outcome == "fault:drop_mid_stream"
    assert 3 <= row.output_tokens < 1000


def test_the_client_sees_a_stream_that_breaks_off_as_an_error(instant_engine: EngineThread) -> None:
    instant_engine.set_faults(Rule(Fault("drop_mid_stream")))
    with pytest.raises(Exception, match=r"(?i)connection|closed|reset|peer"):
        ask(instant_engine, "Hello")


def test_a_first_token_can_be_slow(instant_engine: EngineThread) -> None:
    instant_engine.set_faults(Rule(Fault("slow_first_token", seconds=0.3)))
    assert ask(instant_engine, "Hello").finish_reason == "stop"
    (row,) = instant_engine.log()
    assert (row.outcome, row.fault) == ("ok", "slow_first_token")
    assert (row.first_token_at or 0) - row.arrived_at >= 0.3


def test_a_stream_can_stall_and_hold_its_slot_until_the_client_goes(instant_engine: EngineThread) -> None:
    instant_engine.set_faults(Rule(Fault("stall", after_tokens=2)))
    with start(instant_engine, ticket_body("Hello", stream=True)) as connection:
        heard = b""
        while heard.count(b'"content"') < 3:
            heard += connection.recv(65536)
        assert instant_engine.state()["running"] == 1
    wait_until(is_running(instant_engine, 0), "the slot to be free")
    assert instant_engine.log()[0].outcome == "aborted"


def test_a_stall_can_end(instant_engine: EngineThread) -> None:
    instant_engine.set_faults(Rule(Fault("stall", after_tokens=2, seconds=0.2)))
    heard = ask(instant_engine, "Hello")
    assert json.loads(heard.text)["label"] == expected_label("Hello", LABELS)
    (row,) = instant_engine.log()
    assert (row.ended_at or 0) - (row.first_token_at or 0) > 0.199  # a difference of two wall times


def test_a_late_abort_keeps_the_slot_after_the_client_has_gone(slow_engine: EngineThread) -> None:
    slow_engine.set_faults(Rule(Fault("late_abort", seconds=0.5)))
    with start(slow_engine, chat_body(10_000)):
        wait_until(is_running(slow_engine), "the request to run")
    left_at = time.time()
    wait_until(is_running(slow_engine, 0), "the slot to be free")
    (row,) = slow_engine.log()
    assert row.outcome == "aborted"
    assert 0.4 < (row.ended_at or 0) - left_at < 2.0


def test_every_fault_is_tried_in_this_file() -> None:
    text = Path(__file__).read_text()
    assert {kind for kind in KINDS if f'"{kind}"' not in text} == set()


def test_a_ticket_can_carry_its_own_fault_and_work_after_the_second_time(instant_engine: EngineThread) -> None:
    ticket = "The printer is on fire. [[fault:429 retry_after=1 times=2]]"
    for _ in range(2):
        with pytest.raises(openai.RateLimitError):
            ask(instant_engine, ticket)
    assert json.loads(ask(instant_engine, ticket).text)["label"] == expected_label(ticket, LABELS)
    assert [row.outcome for row in instant_engine.log()] == ["fault:429", "fault:429", "ok"]


def test_faults_can_be_scripted_by_number_and_text(instant_engine: EngineThread) -> None:
    instant_engine.set_faults(Rule(Fault("500"), numbers=(2,)), Rule(Fault("empty"), text="parcel"))
    ask(instant_engine, "One")
    with pytest.raises(openai.InternalServerError):
        ask(instant_engine, "Two")
    assert ask(instant_engine, "My parcel").text == ""
    assert ask(instant_engine, "Four").text != ""
