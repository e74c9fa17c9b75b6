"""Chat from a file, and chat from what was stored of a night."""

import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from scheduler.hours import SharedHours
from scheduler.simulation.engine.profile import EngineProfile
from scheduler.simulation.night import Night, play
from scheduler.simulation.replay import Stretch, replayed
from scheduler.simulation.shapes import Arrival, alternating, long_answers
from scheduler.simulation.tickets import SHORT
from scheduler.simulation.trace import Trace, TraceUnreadable
from tests.simulation.sites import MIDDLE

pytestmark = pytest.mark.long

HEAD = "TIMESTAMP,ContextTokens,GeneratedTokens\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "chat.csv"


def test_a_trace_is_read_from_its_first_request_on(file: Path) -> None:
    # As the public traces have it: seven digits of a second, and here a byte-order mark and another order.
    file.write_text(
        "\ufeffContextTokens,TIMESTAMP,GeneratedTokens\n"
        "374,2023-11-16 18:15:46.6805900,44\n"
        "396,2023-11-16 18:15:50.9951690,109\n"
        "0,2023-11-16 18:15:48,0\n"
    )
    trace = Trace.read(file)
    assert trace.seconds == pytest.approx(4.314579)
    assert [arrival.at for arrival in trace.arrivals] == pytest.approx([0.0, 1.31941, 4.314579])
    assert [arrival[1:] for arrival in trace.arrivals] == [(374, 44), (1, 1), (396, 109)]


def test_timestamps_may_have_a_zone_each(file: Path) -> None:
    file.write_text(HEAD + "2026-11-30T22:00:00+01:00,3,4\n2026-11-30T21:00:05Z,5,6\n2026-11-30 21:00:09.5,7,8\n")
    assert [arrival.at for arrival in Trace.read(file).arrivals] == [0, 5, 9.5]


def test_a_file_in_another_encoding_is_no_trace(file: Path) -> None:
    file.write_bytes(HEAD.encode() + b"2026-11-30 22:00:00,3,\xe4\n")
    with pytest.raises(TraceUnreadable, match="no CSV file in UTF-8"):
        Trace.read(file)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("TIMESTAMP,ContextTokens\n", "no column GeneratedTokens; it needs TIMESTAMP, ContextTokens, GeneratedTokens"),
        ("", "no column TIMESTAMP"),
        (HEAD + "2023-11-16 18:15:46,3,4\nyesterday,3,4\n", "line 3"),
        (HEAD + "2023-11-16 18:15:46,many,4\n", "line 2"),
        (HEAD + "2023-11-16 18:15:46,3\n", "line 2"),
        (HEAD + "2023-11-16 18:15:46,3,4\n", "no two requests at different times"),
    ],
)
def test_what_is_no_trace_says_where(file: Path, text: str, words: str) -> None:
    file.write_text(text)
    with pytest.raises(TraceUnreadable, match=words):
        Trace.read(file)


def test_a_trace_that_is_too_short_comes_again() -> None:
    trace = Trace((Arrival(0.0, 10, 1), Arrival(4.0, 20, 2)), 4.0)
    laps = sorted(trace.lap(0.0, 10.0, 1.0, random.Random(1)))
    assert [(arrival.at, arrival.prompt_tokens) for arrival in laps] == [(0, 10), (4, 10), (4, 20), (8, 10), (8, 20)]
    assert [arrival.at for arrival in sorted(trace.lap(1.0, 4.0, 1.0, random.Random(1)))] == [3, 3]


def stretches(chat: list[Arrival], seconds: float, *, are_counted: bool = True) -> list[Stretch]:
    """What a night with this chat would store of it, and next to nothing else in the pool."""
    start = datetime(2026, 11, 30, 22, 0, tzinfo=UTC)
    hours = SharedHours.of(["03:00-03:01"], ZoneInfo("UTC"))
    night = Night(MIDDLE, hours, [SHORT] * 100_000, chat, start, start + timedelta(seconds=seconds))
    rows = play(night).rows
    return [Stretch(row.seconds, row.arrivals * are_counted, row.chat.slots, row.chat.tokens) for row in rows]


@pytest.mark.parametrize("shape", [alternating, long_answers])
@pytest.mark.parametrize("are_counted", [True, False], ids=["arrivals stored", "only seen at the engine"])
def test_a_night_played_again_has_the_chat_in_flight_that_it_had(shape: object, are_counted: bool) -> None:
    assert callable(shape)
    was = stretches(shape(MIDDLE, 1, 1800.0), 1800.0, are_counted=are_counted)
    again = replayed(was, MIDDLE.profile, random.Random(1))
    assert again is not None
    assert again.seconds == pytest.approx(sum(one.seconds for one in was))
    assert list(again.arrivals) == sorted(again.arrivals)
    got = stretches(list(again.arrivals), 1800.0)
    tolerance = 0.15 if are_counted else 0.3

    def mean(seen: list[Stretch], axis: str) -> float:
        return float(sum(getattr(one, axis) * one.seconds for one in seen) / sum(one.seconds for one in seen))

    assert mean(got, "slots") == pytest.approx(mean(was, "slots"), rel=tolerance)
    assert mean(got, "tokens") == pytest.approx(mean(was, "tokens"), rel=tolerance)
    if are_counted:
        assert len(again.arrivals) == sum(one.arrivals for one in was)


def test_a_night_without_chat_has_none() -> None:
    assert replayed([Stretch(10.0, 0, 0, 0)], EngineProfile(), random.Random(1)) is None


def test_requests_that_were_never_seen_in_flight_are_usual_ones() -> None:
    again = replayed([Stretch(10.0, 3, 0, 0), Stretch(10.0, 0, 0, 0)], EngineProfile(), random.Random(1))
    assert again is not None
    assert len(again.arrivals) == 3
    assert all(0 <= arrival.at < 10 and arrival.prompt_tokens > arrival.output_tokens > 0 for arrival in again.arrivals)


def test_on_an_instant_engine_it_does_not_fail() -> None:
    for arrivals in (4, 0):
        again = replayed([Stretch(10.0, arrivals, 1, 700)], EngineProfile.instant(), random.Random(1))
        assert again is not None
        assert again.arrivals
