"""What a server's answer says about the priority of a request."""

import logging

import pytest

from workers.engine_error import EngineError
from workers.priority import BatchPriority, refuses_priority


def test_only_engines_that_serve_by_priority_get_one() -> None:
    given = {
        engine: BatchPriority("gpu", engine).value
        for engine in ("vllm", "sglang", "tensorrt-llm", "tgi", "llama.cpp", "openai")
    }
    assert given == {
        "vllm": 1,  # chat: 0, served first
        "sglang": -9223372036854775808,  # what SGLang itself gives a request without one: never before the chat
        "tensorrt-llm": None,
        "tgi": None,
        "llama.cpp": None,
        "openai": None,
    }


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, EngineError("Got priority 1 but Priority scheduling is not enabled.", "BadRequestError", status=400)),
        (200, EngineError("Got priority 1 but Priority scheduling is not enabled.", "BadRequestError", status=400)),
        (503, EngineError("Using priority is disabled for this server. Please send a new request without a priority.")),
        (422, EngineError("priority: Extra inputs are not permitted", "extra_forbidden", param="priority")),
        (400, EngineError("Unrecognized request argument supplied", param="priority")),
        (422, EngineError("Failed to deserialize: priority: invalid value: integer `-9223372036854775808`")),
    ],
)
def test_a_refusal_for_the_priority_is_known(status: int, error: EngineError) -> None:
    assert refuses_priority(status, error)


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (503, EngineError("The request is aborted by a higher priority request.")),
        (503, EngineError("The request queue is full.")),
        (400, EngineError("max_tokens must be at least 1, got 0.", param="max_tokens")),
        (500, EngineError("EngineCore encountered an issue.")),
        (200, EngineError("priority")),
        (400, None),
    ],
)
def test_other_refusals_are_not_taken_for_one(status: int, error: EngineError | None) -> None:
    assert not refuses_priority(status, error)


def test_it_is_said_once_that_a_server_takes_none(caplog: pytest.LogCaptureFixture) -> None:
    priority = BatchPriority("gpu", "vllm")
    for _ in range(3):
        priority.switch_off()
    assert priority.value is None
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert record.getMessage().startswith("pool gpu: the server takes no priority")
