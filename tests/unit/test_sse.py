from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.sse import EventParser, OversizedStream


def parse(*pieces: bytes) -> list[bytes]:
    parser = EventParser()
    return [event for piece in pieces for event in parser.feed(piece)] + parser.close()


def test_each_event_is_given_when_its_blank_line_has_come() -> None:
    parser = EventParser()
    assert parser.feed(b"data: one\n\ndata: t") == [b"one"]
    assert parser.feed(b"wo\n") == []
    assert parser.feed(b"\ndata: [DONE]\n\n") == [b"two", b"[DONE]"]
    assert parser.close() == []


@pytest.mark.parametrize(
    ("stream", "events"),
    [
        (b"data: a\r\n\r\ndata: b\r\n\r\n", [b"a", b"b"]),
        (b"data: a\r\rdata: b\r\r", [b"a", b"b"]),
        (b"data:a\n\n", [b"a"]),
        (b"data:  a \n\n", [b" a "]),
        (b": a comment\n\ndata: a\n\n", [b"a"]),
        (b"event: message\nid: 7\nretry: 10\ndata: a\n\n", [b"a"]),
        (b"data: a\ndata: b\n\n", [b"a\nb"]),
        (b"data\n\ndatabase: x\n\n", []),
        (b"data:\n\n", [b""]),
        (b"\n\n\n\n", []),
        (b"data: a", [b"a"]),
        (b"data: a\n", [b"a"]),
        (b"data: a\r", [b"a"]),
        ("data: é…\n\n".encode(), ["é…".encode()]),
        (b"<html>\n<body>not a stream</body>\n", []),
        (b"", []),
    ],
)
def test_the_forms_a_stream_may_take(stream: bytes, events: list[bytes]) -> None:
    assert parse(stream) == events


_lines = st.one_of(
    st.sampled_from([b"data: {}", b"data:", b"data: [DONE]", b": ping", b"event: x", b"", b""]),
    st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), max_size=12).map(
        lambda text: b"data: " + text.encode()
    ),
    st.binary(max_size=6).map(lambda data: data.replace(b"\r", b"").replace(b"\n", b"")),
)


@given(
    st.lists(st.tuples(_lines, st.sampled_from([b"\n", b"\r\n", b"\r"])), max_size=20),
    st.lists(st.integers(0, 200), max_size=20),
)
def test_where_the_bytes_are_cut_does_not_matter(lines: list[tuple[bytes, bytes]], cuts: list[int]) -> None:
    stream = b"".join(line + end for line, end in lines)
    at = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    pieces = [stream[start:end] for start, end in pairwise(at)]
    assert parse(*pieces) == parse(stream)
    assert parse(*(bytes([byte]) for byte in stream)) == parse(stream)


@given(st.lists(st.text(min_size=1).map(str.encode).filter(lambda data: b"\r" not in data), max_size=10))
def test_what_is_written_as_events_is_read_back(events: list[bytes]) -> None:
    stream = b"".join(b"".join(b"data: %b\n" % line for line in event.split(b"\n")) + b"\n" for event in events)
    assert parse(stream) == events


def feed_for_ever(parser: EventParser, piece: bytes) -> None:
    for _ in range(100):
        parser.feed(piece)


@pytest.mark.parametrize("piece", [b"x" * 100, b"data: %b\n" % (b"x" * 100), b"data:\n" * 100])
def test_an_event_without_end_is_not_kept_for_ever(piece: bytes) -> None:
    with pytest.raises(OversizedStream, match="an event is longer than 1000 bytes"):
        feed_for_ever(EventParser(max_event_bytes=1000), piece)


def test_many_small_events_end_at_the_bound_of_the_stream() -> None:
    parser = EventParser(max_event_bytes=1000, max_stream_bytes=5000)
    with pytest.raises(OversizedStream, match="the stream is longer than 5000 bytes"):
        feed_for_ever(parser, b"data: %b\n\n" % (b"x" * 100))
