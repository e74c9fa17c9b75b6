"""A model's stream of any bytes, cut anywhere: the events of a simple reader, the same in one piece, and a verdict."""

import re
from functools import partial
from itertools import pairwise
from pathlib import Path

from jobs.answer import parse_answer
from jobs.outcomes import Symptom
from jobs.spec import ClassificationSpec
from tests.fuzz.claims import storable
from tests.fuzz.target import Target
from workers import symptoms
from workers.detail import Censor
from workers.reply import MOST_TOKENS, Reply, UnreadableChunk
from workers.sse import EventParser, OversizedStream
from workers.symptoms import Finding
from workers.verdict import verdict

SPEC = ClassificationSpec(labels={"account": "logins", "billing": "charges", "shipping": "parcels"})
TICKET, KEY = "my parcel 4711 never came to Rosemary Lane", "sk-live-31415926"
EVENT_BYTES, STREAM_BYTES = 200, 600


def judge(data: bytes, folder: Path) -> None:
    """Up to the first NUL stand the places where it is cut."""
    places, _, stream = data.partition(b"\0")
    cuts = sorted({0, len(stream), *(place for place in places if place < len(stream))})
    pieces = [stream[start:end] for start, end in pairwise(cuts)]
    events = simply_read(stream)
    for split in (pieces, [stream], [bytes([byte]) for byte in stream]):
        parser = EventParser()
        assert [event for piece in split for event in parser.feed(piece)] + parser.close() == events
    reply, again = replied(events), replied(events)
    if reply is not None and again is not None:
        assert reply.text == again.text
        check(reply)
    within_bounds(pieces, events)


def simply_read(stream: bytes) -> list[bytes]:
    """The data of the events, read at once; the blank line behind the last may be missing."""
    events, fields = [], []
    for line in [*re.split(rb"\r\n|\r|\n", stream), b""]:
        if line.startswith(b"data:"):
            fields.append(line.removeprefix(b"data:").removeprefix(b" "))
        elif not line and fields:
            events.append(b"\n".join(fields))
            fields = []
    return events


def replied(events: list[bytes]) -> Reply | None:
    reply = Reply()
    try:
        for event in events:
            reply.take(event)
    except UnreadableChunk:
        return None
    return reply


def check(reply: Reply) -> None:
    """A label of the set, or a finding that tells neither the ticket nor the key, and fits in one line."""
    if reply.usage is not None:
        assert 0 <= reply.usage.prompt_tokens <= MOST_TOKENS
        assert 0 <= reply.usage.completion_tokens <= MOST_TOKENS
    judged = verdict(reply, partial(parse_answer, SPEC))
    if isinstance(judged, str):
        assert judged in SPEC.labels
        assert not reply.refused
    else:
        check_finding(judged)
    if reply.error is not None:
        check_finding(symptoms.of_error_object(reply.error, clean=Censor(TICKET, KEY)))


def check_finding(found: Finding) -> None:
    storable(found.detail)
    assert "\n" not in found.detail
    assert len(found.detail) <= 300
    assert KEY not in found.detail
    assert "Rosemary" not in found.detail
    assert isinstance(found.symptom, Symptom)


def within_bounds(pieces: list[bytes], events: list[bytes]) -> None:
    """What is longer than the bounds is given up, and all else is not."""
    parser = EventParser(max_event_bytes=EVENT_BYTES, max_stream_bytes=STREAM_BYTES)
    try:
        given = [event for piece in pieces for event in parser.feed(piece)]
    except OversizedStream as refused:
        storable(str(refused))
        assert sum(map(len, pieces)) > min(EVENT_BYTES, STREAM_BYTES)
        return
    assert sum(map(len, pieces)) <= STREAM_BYTES
    assert given + parser.close() == events


CHUNK = b'data: {"choices": [{"delta": {"content": "{\\"label\\": \\"billing\\"}"}, "finish_reason": "stop"}]}\n\n'
USAGE = b'data: {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 4}}\n\n'
TARGET = Target(
    judge,
    seeds=(
        b"\7\x0a\x20\0" + CHUNK + USAGE + b"data: [DONE]\n\n",
        b"\0" + CHUNK.replace(b"\n", b"\r\n") + b": comment\r\nevent: x\r\n\r\n" + USAGE.replace(b"\n", b"\r"),
        b"\0data: {\ndata: }\n\n" + CHUNK,
        b'\0data: {"error": {"message": "no Rosemary Lane for sk-live-31415926", "code": 429}}\n\n',
        b'\0data: {"choices": [{"delta": {"reasoning": "x"}, "finish_reason": "length"}]}\n\n',
        b'\0data: {"choices": [{"delta": {"refusal": "no"}, "finish_reason": null}]}\n\n',
        b'\0data: {"usage": {"prompt_tokens": -1, "completion_tokens": 1e99}}\n\ndata: 7\n\n',
        b'\0data: {"choices": [{"delta": {"content": "' + b" " * 120 + b'"}}]}\n\n',
        b"\0data: " + b"x" * 700,
    ),
    words=("data: ", "\n\n", "\r\n", "\r", "[DONE]", '{"choices": [{"delta": {"content": "', '"}, "finish_reason": "',
           'stop"}]}', 'length"}]}', '"usage": {', '"prompt_tokens": ', '{"error": ', '"message": ', "Rosemary Lane"),
)  # fmt: skip
