import json
from functools import partial
from typing import Any

import pytest

from jobs.answer import parse_answer
from jobs.outcomes import Symptom, Usage
from jobs.spec import ClassificationSpec
from workers.reply import ANSWER_CHARS, WHITE_SPACE_CHARS, Reply, UnreadableChunk
from workers.symptoms import Finding
from workers.verdict import verdict


def chunk(content: str | None = None, *, finish: str | None = None, **delta: Any) -> bytes:
    said = delta if content is None else {"content": content, **delta}
    return json.dumps({"choices": [{"index": 0, "delta": said, "finish_reason": finish}]}).encode()


def reply_to(*events: bytes) -> Reply:
    reply = Reply()
    for event in events:
        reply.take(event)
    return reply


parse = partial(parse_answer, ClassificationSpec(labels={"billing": "", "shipping": ""}))


def judged(*events: bytes) -> str | Finding:
    return verdict(reply_to(*events), parse)


def test_an_answer_comes_in_pieces_and_its_usage_last() -> None:
    reply = reply_to(
        chunk("", role="assistant"),
        chunk('{"label": '),
        chunk('"billing"}'),
        chunk(finish="stop"),
        b'{"choices": [], "usage": {"prompt_tokens": 500, "completion_tokens": 8, "total_tokens": 508}}',
        b"[DONE]",
    )
    assert reply.text == '{"label": "billing"}'
    assert reply.tokens == 2
    assert reply.usage == Usage(500, 8)
    assert (reply.finish_reason, reply.complete, reply.done) == ("stop", True, True)


@pytest.mark.parametrize(
    "event",
    [
        b"{}",
        b'{"choices": null, "usage": null}',
        b'{"choices": [null]}',
        b'{"choices": [{"delta": null}]}',
        b'{"choices": [{"delta": {"content": null, "reasoning": null, "role": "assistant"}}]}',
        b'{"choices": [{"delta": {"content": 7}}], "usage": {"prompt_tokens": "x", "completion_tokens": -1}}',
        b'{"choices": {}, "usage": []}',
    ],
)
def test_what_says_nothing_is_passed_over(event: bytes) -> None:
    reply = reply_to(event)
    assert (reply.text, reply.tokens, reply.complete, reply.error) == ("", 0, False, None)


@pytest.mark.parametrize("event", [b"", b"not json", b"[]", b"7", b"null", b'{"choices": [', b"\xff", b"[" * 100_000])
def test_what_is_no_object_cannot_be_read(event: bytes) -> None:
    with pytest.raises(UnreadableChunk):
        Reply().take(event)


@pytest.mark.parametrize(
    "event",
    [
        b'{"error": {"code": 500, "message": "x"}}',
        b'{"object": "error", "code": 500, "message": "x"}',
        b'{"error": "x"}',
    ],
)
def test_an_error_object_is_kept_as_it_is(event: bytes) -> None:
    assert reply_to(event).error


def test_white_space_counts_only_in_a_row() -> None:
    half = " " * (WHITE_SPACE_CHARS // 2 + 1)
    assert reply_to(chunk("{" + half), chunk('"label"' + half)).runaway is None
    assert reply_to(chunk("{" + half), chunk(half)).runaway == "endless white space, cut after 2 tokens"


def test_an_answer_is_bounded() -> None:
    reply = Reply()
    while reply.runaway is None:
        reply.take(chunk("x" * 1000))
    assert ANSWER_CHARS < len(reply.text) <= ANSWER_CHARS + 1000
    assert reply.runaway.startswith("longer than 65536 characters")


def test_a_right_answer_is_a_label() -> None:
    assert judged(chunk('{"label": "billing"}'), chunk(finish="stop")) == "billing"


def test_the_end_mark_alone_completes_an_answer() -> None:
    assert judged(chunk('{"label": "billing"}'), b"[DONE]") == "billing"


@pytest.mark.parametrize(
    ("events", "symptom", "detail"),
    [
        ([chunk("nonsense"), chunk(finish="stop")], Symptom.INVALID_OUTPUT, "not the JSON that was asked for"),
        ([chunk(finish="stop")], Symptom.INVALID_OUTPUT, "empty content, finish_reason=stop"),
        ([chunk("  \n"), chunk(finish="stop")], Symptom.INVALID_OUTPUT, "empty content, finish_reason=stop"),
        ([b"[DONE]"], Symptom.INVALID_OUTPUT, "empty content, finish_reason=none"),
        (
            [chunk(reasoning_content="It is billing."), chunk(finish="stop")],
            Symptom.INVALID_OUTPUT,
            "empty content, finish_reason=stop, reasoning only",
        ),
        (
            [chunk(reasoning="It is billing."), chunk(finish="stop")],
            Symptom.INVALID_OUTPUT,
            "empty content, finish_reason=stop, reasoning only",
        ),
        (
            [chunk('{"label": "bil'), chunk(finish="length")],
            Symptom.INVALID_OUTPUT,
            "cut short after 1 token, finish_reason=length",
        ),
        ([chunk("{" + " " * 101)], Symptom.INVALID_OUTPUT, "endless white space, cut after 1 token"),
        ([chunk(finish="content_filter")], Symptom.REFUSED, "a content filter stopped the answer"),
        ([chunk(refusal="I cannot."), chunk(finish="stop")], Symptom.REFUSED, "the model refused to answer"),
        (
            [chunk("{"), chunk(finish="abort")],
            Symptom.SERVER_ERROR,
            "the engine gave the answer up (finish_reason=abort)",
        ),
        ([], Symptom.DISCONNECTED, "the stream ended before the answer did (0 tokens in)"),
        ([chunk('{"label": "billing"}')], Symptom.DISCONNECTED, "the stream ended before the answer did (1 token in)"),
    ],
)
def test_what_is_no_answer_says_why(events: list[bytes], symptom: Symptom, detail: str) -> None:
    assert judged(*events) == Finding(symptom, detail)


@pytest.mark.parametrize(
    "events",
    [
        [chunk('{"label": "billing"}' + "\n" * 101)],
        [chunk('{"label": "billing"}\n\n\n'), chunk(finish="length")],
        [chunk('{"label": "billing"}'), chunk(finish="length")],
    ],
)
def test_an_answer_that_was_whole_before_white_space_ran_on_counts(events: list[bytes]) -> None:
    assert judged(*events) == "billing"
