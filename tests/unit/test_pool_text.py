"""A pool in `status`: every fact on both axes, readable at 80 columns."""

from datetime import UTC, datetime, timedelta

from jobs.store.events import Event
from scheduler.capacity import Amount
from scheduler.hours import SharedHours
from scheduler.permit import Outlook
from scheduler.pool_reading import PoolReading
from tests.support.readings import BERLIN, DEDICATED, note, reading, snapshot, stale, waited
from tests.support.store import START
from tickets_batch.cli.pool_text import pool_in_words

BUSY = snapshot(
    interactive=Amount(6, 18_000),
    batch=Amount(9, 30_000),
    reclaiming=Amount(1, 3_400),
    prefill_tokens=900,
    interactive_waiting=2,
    oldest_waiting_seconds=0.31,
    outlook=Outlook(high=Amount(9, 27_000), reserve=1),
    refused=1_204,
    recent=waited(0.30, 0.52, 0.28),
    note=note("full", "the whole shared part", age_seconds=0.4, ledger=0.2, engine=None),
)


def words(pool: PoolReading, *changes: Event) -> dict[str, str]:
    return dict(pool_in_words(pool, changes, BERLIN))


def test_everything_that_is_known_of_a_shared_pool() -> None:
    pool = reading(BUSY, hours=SharedHours.of(["22:00-05:00"], BERLIN))
    assert list(pool_in_words(pool, [], BERLIN)) == [
        ("pool gpu", "batch holds 9 of 12 slots, 30,000 of 36,000 tokens; 1 of its slots asked back"),
        ("  limit", "the whole shared part"),
        (
            "  chat",
            "6 slots, 18,000 tokens in flight; 2 without a first token, for up to 0.3 s; "
            "first token after 0.30 s (p50), 0.52 s (p95), last 3; 1,204 refused",
        ),
        ("  readings", "ledger 1 s ago, engine never"),
        ("  prefill", "900 prompt tokens before a first token; 3,000 at a time, or one ticket"),
        ("  hours", "open until 2026-12-01 05:00 Europe/Berlin"),
    ]


def test_a_pool_of_batchs_own_has_no_chat_and_no_hours() -> None:
    pool = reading(snapshot(limit=DEDICATED.floor), capacity=DEDICATED, hours=SharedHours.of(["22:00-05:00"], BERLIN))
    assert list(words(pool)) == ["pool gpu", "  limit", "  prefill"]


def test_closed_hours_say_when_they_open() -> None:
    pool = reading(hours=SharedHours.of(["08:00-12:00"], BERLIN))
    assert words(pool)["  hours"] == "closed until 2026-12-01 08:00 Europe/Berlin: batch stays at its floor"


def test_without_a_fresh_limit_it_says_since_when() -> None:
    said = words(reading(stale(note=note(age_seconds=3_600, ledger=1.0))))
    assert said["  limit"] == (
        "no fresh limit for 3,600 s: the floor holds; the last one is of 2026-11-30 22:00 Europe/Berlin"
    )
    assert said["  readings"] == "ledger 1 h 0 min ago (stale)"


def test_nothing_that_tells_of_the_chat_is_said_to_be_nothing() -> None:
    assert words(reading(stale()))["  readings"] == "none: no source has answered"
    assert words(reading())["  chat"] == "0 slots, 0 tokens in flight; 0 refused"


def test_the_last_changes_are_told_with_their_reason() -> None:
    at = START + timedelta(seconds=7)
    told = Event(at, "limit", None, "gpu", {"from": "shared", "to": "floor", "reason": "a chat request waited 1.2 s"})
    first = Event(
        datetime(2026, 11, 30, 21, tzinfo=UTC), "limit", None, "gpu", {"from": None, "to": "shared", "reason": "full"}
    )
    lines = [line for name, line in pool_in_words(reading(), [told, first], BERLIN) if name == "  changed"]
    assert lines == [
        "11-30 23:00:07 from shared to floor: a chat request waited 1.2 s",
        "11-30 22:00:00 to shared: full",
    ]
