"""The record of the pools: a sample each ten seconds, an event for each change, both only while a batch is at work."""

from datetime import timedelta
from typing import Any

import pytest

from jobs.store import batches, events, samples
from jobs.store.database import Database
from jobs.store.samples import LoadSample
from scheduler.capacity import Amount
from scheduler.journal import CHANGE_SECONDS, SAMPLE_SECONDS, Journal
from scheduler.permit import Kind
from scheduler.snapshot import Snapshot
from tests.support.readings import CAPACITY, DEDICATED, note, reading, snapshot, stale, waited
from tests.support.store import START, ManualClock, claim, submit, succeed, ticket

SHARED = snapshot(note=note("full"))
FLOOR = snapshot(limit=CAPACITY.floor, note=note("red", "a chat request waited 1.2 s"), revoked=3)


class Night:
    """A journal whose time passes with the database's."""

    def __init__(self, store: Database, clock: ManualClock) -> None:
        self.store = store
        self.clock = clock
        self.journal = Journal(store, lambda: (clock() - START).total_seconds())

    def look(self, *seen: Snapshot, after: float = 0.0) -> None:
        at = self.clock.advance(after)
        self.journal.note([reading(one, name=f"p{number}", at=at) for number, one in enumerate(seen)])

    def told(self, pool: str = "p0") -> list[Any]:
        found = reversed(events.of_pool(self.store, pool, 100))
        return [(event.detail["from"], event.detail["to"]) for event in found]

    def sampled(self, pool: str = "p0") -> list[LoadSample]:
        return samples.between(self.store, pool, START, START + timedelta(days=90))


@pytest.fixture
def night(store: Database, store_clock: ManualClock) -> Night:
    return Night(store, store_clock)


def test_nothing_is_written_while_no_batch_is_at_work(night: Night) -> None:
    batch = submit(night.store, 1).batch_id
    succeed(night.store, claim(night.store, batch))
    for _ in range(3):
        night.look(SHARED, after=SAMPLE_SECONDS)
        night.look(FLOOR, after=CHANGE_SECONDS)
    assert (night.told(), night.sampled()) == ([], [])


class TestChanges:
    @pytest.fixture(autouse=True)
    def at_work(self, night: Night) -> None:
        submit(night.store, 1)

    def test_the_first_word_is_where_it_stands(self, night: Night) -> None:
        night.look(SHARED)
        night.look(SHARED, after=60)
        assert night.told() == [(None, "shared")]

    def test_a_change_is_told_with_its_rule_and_its_reading(self, night: Night) -> None:
        night.look(SHARED)
        seen = snapshot(
            limit=CAPACITY.floor,
            interactive=Amount(9, 27_000),
            interactive_waiting=2,
            oldest_waiting_seconds=1.25,
            recent=waited(0.25, 1.5),
            revoked=7,
            note=note("red", "a chat request waited 1.2 s", age_seconds=-60, ledger=0.5),
        )
        night.look(seen, after=60)
        assert night.told() == [(None, "shared"), ("shared", "floor")]
        assert events.of_pool(night.store, "p0", 1)[0].detail == {
            "from": "shared",
            "to": "floor",
            "rule": "red",
            "reason": "a chat request waited 1.2 s",
            "limit": {"slots": 2, "tokens": 6_000},
            "chat": {"slots": 9, "tokens": 27_000},
            "waiting": 2,
            "oldest_waiting_seconds": 1.25,
            "ttft_p95_seconds": 1.5,
            "reading_age_seconds": 0.5,
            "revoked": 7,
            "changes": 1,
        }

    def test_what_flaps_is_told_at_most_once_in_a_while_and_counted(self, night: Night) -> None:
        night.look(SHARED)
        for _ in range(8):
            night.look(FLOOR, after=CHANGE_SECONDS / 10)
            night.look(SHARED, after=CHANGE_SECONDS / 10)
        assert night.told() == [(None, "shared"), ("shared", "floor")]
        night.look(SHARED, after=CHANGE_SECONDS)
        assert night.told() == [(None, "shared"), ("shared", "floor"), ("floor", "shared")]
        counted = [event.detail["changes"] for event in events.of_pool(night.store, "p0", 9)]
        assert sum(counted) == 16

    def test_a_change_that_came_too_soon_is_told_later(self, night: Night) -> None:
        night.look(SHARED)
        night.look(FLOOR, after=1)
        assert night.told() == [(None, "shared")]
        night.look(FLOOR, after=CHANGE_SECONDS)
        assert night.told() == [(None, "shared"), ("shared", "floor")]

    def test_pools_are_told_apart(self, night: Night) -> None:
        night.look(SHARED, SHARED)
        night.look(SHARED, stale(), after=60)
        assert night.told("p0") == [(None, "shared")]
        assert night.told("p1") == [(None, "shared"), ("shared", "stale")]

    def test_a_pool_of_batchs_own_is_told_once(self, night: Night) -> None:
        for limit in (DEDICATED.floor, DEDICATED.floor):
            night.clock.advance(60)
            night.journal.note([reading(snapshot(limit=limit), name="p0", capacity=DEDICATED, at=night.clock())])
        assert night.told() == [(None, "dedicated")]

    def test_a_batch_after_a_rest_begins_a_new_record(self, night: Night) -> None:
        night.look(SHARED)
        batch = batches.unfinished(night.store)[0]
        succeed(night.store, claim(night.store, batch))
        night.look(FLOOR, after=60)
        submit(night.store, [ticket(99)], source_key="other")
        night.look(SHARED, after=60)
        assert night.told() == [(None, "shared"), (None, "shared")]


class TestSamples:
    @pytest.fixture(autouse=True)
    def at_work(self, night: Night) -> None:
        submit(night.store, 1)

    def test_one_a_pool_each_ten_seconds(self, night: Night) -> None:
        for _ in range(36):
            night.look(SHARED, SHARED, after=1)
        assert len(night.sampled("p0")) == len(night.sampled("p1")) == 3

    def test_it_holds_what_came_since_the_one_before(self, night: Night) -> None:
        mine = waited(9.0, kind=Kind.BATCH)
        night.look(snapshot(arrivals=100, refused=5, revoked=50, first_tokens=40, recent=waited(7.0)))
        seen = snapshot(
            arrivals=103,
            refused=6,
            revoked=54,
            first_tokens=43,
            recent=(*waited(0.5), *mine, *waited(0.25), *waited(7.0)),
            interactive=Amount(9, 27_000),
            batch=Amount(4, 12_000),
            interactive_waiting=1,
            note=note("full", age_seconds=-10, engine=0.5, ledger=1.5),
        )
        night.look(seen, after=SAMPLE_SECONDS)
        (sample,) = night.sampled()
        assert (sample.interactive_arrivals, sample.interactive_refused, sample.revoked) == (3, 1, 4)
        assert (sample.ttft_seconds, sample.reading_age_seconds) == (0.5, 0.5)
        assert (sample.batch_slots, sample.interactive_tokens, sample.interactive_waiting) == (4, 27_000, 1)
        assert (sample.limit_slots, sample.reason) == (11, "headroom")

    def test_a_ledger_that_began_anew_has_no_negative_growth(self, night: Night) -> None:
        night.look(snapshot(arrivals=100, first_tokens=90))
        night.look(snapshot(arrivals=2, first_tokens=2, recent=waited(0.25, 0.5)), after=SAMPLE_SECONDS)
        (sample,) = night.sampled()
        assert (sample.interactive_arrivals, sample.ttft_seconds) == (2, 0.5)

    def test_without_a_chat_request_there_is_no_ttft(self, night: Night) -> None:
        night.look(snapshot(first_tokens=4, recent=waited(0.25)))
        night.look(snapshot(first_tokens=4, recent=waited(0.25)), after=SAMPLE_SECONDS)
        assert [(one.ttft_seconds, one.reading_age_seconds) for one in night.sampled()] == [(None, None)]

    def test_after_a_month_they_go(self, night: Night) -> None:
        night.look(SHARED)
        night.look(SHARED, after=SAMPLE_SECONDS)
        first = night.sampled()
        night.look(SHARED, after=31 * 24 * 3600)
        assert first[0] not in night.sampled()
        assert night.told() == []
