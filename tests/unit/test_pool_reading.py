"""What a reader is told of a pool: what batch has of it, the rule that binds, and how old the readings are."""

from dataclasses import replace
from datetime import UTC, timedelta

import pytest

from scheduler.capacity import Amount
from scheduler.hours import SharedHours
from scheduler.note import Note
from scheduler.permit import Kind, Outlook
from scheduler.pool_reading import REMEDY, Condition, PoolReading, Source, quantile
from scheduler.snapshot import Snapshot
from tests.support.readings import BERLIN, CAPACITY, DEDICATED, note, reading, snapshot, stale, waited
from tests.support.store import START

BY_DAY = SharedHours.of(["08:00-12:00"], BERLIN)  # START is 23:00 in Berlin


@pytest.mark.parametrize(
    ("pool", "expected", "why"),
    [
        (reading(), Condition.SHARED, "shared"),
        (reading(snapshot(note=note("full", "the chat is quiet"))), Condition.SHARED, "the chat is quiet"),
        (
            reading(snapshot(limit=CAPACITY.floor, note=note("red", "a chat request waited 1.2 s"))),
            Condition.FLOOR,
            "a chat request waited 1.2 s",
        ),
        (reading(snapshot(limit=Amount(12, 6_000))), Condition.FLOOR, "floor"),
        (
            reading(snapshot(limit=CAPACITY.floor, note=note("congestion"))),
            Condition.FLOOR,
            "requests queue at the engine: the floor holds",
        ),
        (
            reading(snapshot(limit=CAPACITY.floor, note=note("hours")), hours=BY_DAY),
            Condition.CLOSED,
            "outside the pool's shared_hours: the floor holds",
        ),
        (
            reading(snapshot(limit=CAPACITY.floor, note=note("blind", is_blind=True)), hours=BY_DAY),
            Condition.BLIND,
            f"blind: no source tells of the chat, so the floor holds; {REMEDY}",
        ),
        (reading(stale()), Condition.STALE, "no reading yet, so the floor holds"),
        (
            reading(snapshot(limit=CAPACITY.floor, note=note("blind", is_blind=True, engine=None))),
            Condition.BLIND,
            f"no reading yet, so the floor holds; if none comes, {REMEDY}",
        ),
        (
            reading(stale(note=note(age_seconds=42, is_blind=True))),
            Condition.STALE,
            "no fresh limit for 42 s: the floor holds",
        ),
        (
            reading(stale(note=note(age_seconds=0.4))),
            Condition.STALE,
            "the ledger has begun anew, and earlier permits may still be out: the floor holds",
        ),
        (
            reading(snapshot(limit=DEDICATED.floor), capacity=DEDICATED, hours=BY_DAY),
            Condition.DEDICATED,
            "all of the pool is batch's own",
        ),
        (
            reading(snapshot(limit=DEDICATED.floor, limit_is_published=False), capacity=DEDICATED),
            Condition.DEDICATED,
            "all of the pool is batch's own",
        ),
    ],
)
def test_what_batch_has_of_a_pool_and_why(pool: PoolReading, expected: Condition, why: str) -> None:
    assert pool.condition is expected
    assert pool.reason == why


def test_a_pool_at_rest_says_so_before_any_rule_of_the_limit() -> None:
    pool = reading(snapshot(paused_seconds=4.6, note=note("full")))
    assert (pool.rule, pool.reason) == ("paused", "the engine asked for rest, 5 s to go")


@pytest.mark.parametrize(
    ("pool", "condition"),
    [
        (reading(snapshot(paused_seconds=4.6, limit=DEDICATED.floor), capacity=DEDICATED), Condition.DEDICATED),
        (reading(snapshot(paused_seconds=4.6, note=note("blind", is_blind=True))), Condition.BLIND),
        (reading(snapshot(paused_seconds=4.6, note=note("blind", is_blind=True, engine=None))), Condition.BLIND),
        (reading(snapshot(paused_seconds=4.6, note=note("hours")), hours=BY_DAY), Condition.CLOSED),
        (reading(stale(paused_seconds=4.6)), Condition.STALE),
    ],
)
def test_a_pool_at_rest_says_so_before_its_condition(pool: PoolReading, condition: Condition) -> None:
    assert (pool.binding, pool.rule_in_words) == ("paused", "paused")
    assert pool.reason == "the engine asked for rest, 5 s to go"
    assert (pool.condition, pool.rule) == (condition, condition.value)  # which samples are kept by


class TestHeadroom:
    SEEN = snapshot(
        interactive=Amount(9, 27_000),
        outlook=Outlook(high=Amount(14, 42_000), reserve=1, rises=(Amount(), Amount(), Amount(), Amount(5, 15_000))),
        note=note("full"),
    )

    def test_the_limit_is_what_a_ticket_like_those_in_flight_would_find(self) -> None:
        assert reading(self.SEEN).limit.slots == 20 - 9 - 1
        hours = replace(self.SEEN, batch_expected_seconds=1e6)
        assert reading(hours).limit == Amount(20 - 14 - 1, 60_000 - 42_000)

    def test_it_is_the_rule_that_binds_where_it_leaves_less_than_was_published(self) -> None:
        pool = reading(self.SEEN)
        assert pool.rule == "headroom"
        assert pool.reason == "headroom: chat holds 9 of 20 slots; kept for it: 1 more"

    def test_it_never_leaves_less_than_the_floor(self) -> None:
        assert reading(snapshot(interactive=Amount(19, 59_000))).limit == CAPACITY.floor

    def test_where_it_leaves_more_the_rule_is_the_schedulers(self) -> None:
        assert reading(snapshot(note=note("full"))).rule == "full"


def test_chat_is_the_larger_of_the_own_count_and_what_the_engine_shows_now() -> None:
    seen = snapshot(interactive=Amount(3, 9_000), observed=Amount(5, 4_000), observed_is_fresh=True)
    assert reading(seen).chat == Amount(5, 9_000)
    assert reading(snapshot(interactive=Amount(3, 9_000), observed=Amount(5, 4_000))).chat == Amount(3, 9_000)


class TestSources:
    def test_they_are_older_now_than_when_they_were_noted(self) -> None:
        pool = reading(snapshot(note=note(age_seconds=0.5, ledger=0.25, engine=None)))
        assert pool.sources == (Source("ledger", 0.75, True), Source("engine", None, False))

    def test_none_is_fresh_without_a_limit_in_force(self) -> None:
        pool = reading(stale(note=note(age_seconds=60, ledger=0.25)))
        assert pool.sources == (Source("ledger", 60.25, False),)

    def test_a_clock_that_is_behind_makes_no_negative_age(self) -> None:
        ahead = snapshot(note=note(age_seconds=-5, ledger=0.25))
        assert reading(ahead).sources == (Source("ledger", 0.25, True),)

    def test_without_a_note_nothing_is_known(self) -> None:
        assert (reading().sources, reading().published_at) == ((), None)
        assert reading(snapshot(note=note(age_seconds=3))).published_at == (START - timedelta(seconds=3)).astimezone(
            UTC
        )


def test_only_the_chats_first_tokens_are_the_chats_ttft() -> None:
    mixed = (*waited(0.3), *waited(9.0, kind=Kind.BATCH), *waited(0.2))
    assert reading(snapshot(recent=mixed)).ttfts_seconds == (0.3, 0.2)


@pytest.mark.parametrize("text", ["", "not json", "[]", '{"why": "no rule"}'])
def test_a_note_that_cannot_be_read_is_no_note(text: str) -> None:
    assert Note.read(text) is None
    seen: Snapshot = snapshot(note=text)
    assert reading(seen).condition is Condition.SHARED


def test_what_a_newer_scheduler_adds_to_its_note_is_left_out() -> None:
    read = Note.read('{"rule": "red", "at": 1.5, "mood": "fine", "load": {"waiting": 2, "moon": 1}}')
    assert read is not None
    assert (read.rule, read.load.waiting) == ("red", 2)


def test_quantiles_are_values_that_were_seen() -> None:
    assert quantile([], 0.5) is None
    assert quantile([3.0], 0.95) == 3.0
    assert quantile([4.0, 1.0, 3.0, 2.0], 0.5) == 2.0
    assert quantile(range(1, 101), 0.95) == 95
