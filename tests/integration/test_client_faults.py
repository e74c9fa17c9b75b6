"""Every fault that the tests' engine offers, as the model client tells it."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from jobs.outcomes import Attempt, Symptom, Usage
from scheduler.simulation.engine.profile import EngineProfile
from tests.engine.faults import KINDS, Fault, Rule
from tests.engine.process import EngineThread
from tests.support.calls import ask, attempt_at, client_of
from tests.support.wait import wait_until
from workers.detail import DETAIL_CHARS


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


def attempt_under(engine: EngineThread, fault: Fault, *, timeout_seconds: float = 10.0) -> Attempt:
    engine.set_faults(Rule(fault))
    return attempt_at(engine.base_url, timeout_seconds=timeout_seconds)


# Every fault of the engine.

SLOW = {"slow_first_token", "stall"}
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


@pytest.mark.parametrize("kind", ["429", "503"])
@pytest.mark.parametrize("form", ["seconds", "date"])
def test_retry_after_comes_through(engine: EngineThread, kind: str, form: Any) -> None:
    attempt = attempt_under(engine, Fault(kind, retry_after_seconds=30, retry_after_form=form))
    assert attempt.retry_after_seconds is not None
    assert 25 < attempt.retry_after_seconds <= 30  # a date is cut to whole seconds


def test_usage_that_the_engine_does_not_report_is_no_prompt_and_the_pieces_that_came(engine: EngineThread) -> None:
    attempt = attempt_under(engine, Fault("missing_usage"))
    assert attempt.label is not None
    assert attempt.usage == Usage(0, engine.log()[0].output_tokens)


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
