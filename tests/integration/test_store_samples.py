"""Samples of the load, events of pools, and what the last answers say of the speed: written, read, forgotten."""

from dataclasses import replace
from datetime import timedelta

from jobs.states import BatchState
from jobs.store import batches, events, moves, samples
from jobs.store.database import Database
from jobs.store.events import EventKind
from tests.support.samples import SAMPLE
from tests.support.store import START, ManualClock, claim, state, submit, succeed


def test_samples_come_back_as_they_were_by_pool_and_time(store: Database) -> None:
    later = replace(SAMPLE, at=START + timedelta(seconds=10), ttft_seconds=None, reading_age_seconds=None)
    samples.record(store, [later, SAMPLE, replace(SAMPLE, pool="deep")])
    samples.record(store, [])

    assert samples.between(store, "gpu", START, START + timedelta(seconds=11)) == [SAMPLE, later]
    assert samples.between(store, "gpu", START, START + timedelta(seconds=10)) == [SAMPLE]
    assert samples.between(store, "gpu", START + timedelta(seconds=1), START + timedelta(hours=1)) == [later]


def test_a_rule_that_no_database_can_hold_is_cleaned(store: Database) -> None:
    samples.record(store, [replace(SAMPLE, reason="a\0b")])
    assert samples.between(store, "gpu", START, START + timedelta(seconds=1))[0].reason == "a\N{REPLACEMENT CHARACTER}b"


def test_old_samples_and_old_events_of_pools_are_forgotten(store: Database, store_clock: ManualClock) -> None:
    batch = submit(store, 1).batch_id
    samples.record(store, [SAMPLE])
    events.record(store, EventKind.LIMIT, pool="gpu", to="shared")
    store_clock.advance(3600)
    samples.record(store, [replace(SAMPLE, at=store_clock())])
    events.record(store, EventKind.LIMIT, pool="gpu", to="floor")

    assert samples.forget(store, older_than_seconds=3599) == 1
    assert events.forget_pools(store, older_than_seconds=3599) == 1

    assert [sample.at for sample in samples.between(store, "gpu", START, START + timedelta(days=1))] == [store_clock()]
    assert [event.detail for event in events.of_pool(store, "gpu", 9)] == [{"to": "floor"}]
    assert [event.kind for event in events.recent(store, batch)] == ["submitted"]


def test_events_of_a_pool_newest_first(store: Database) -> None:
    for pool, to in (("gpu", "shared"), ("deep", "dedicated"), ("gpu", "floor"), ("gpu", "blind")):
        events.record(store, EventKind.LIMIT, pool=pool, to=to)
    assert [event.detail["to"] for event in events.of_pool(store, "gpu", 2)] == ["blind", "floor"]
    assert {event.pool for event in events.of_pool(store, "gpu", 9)} == {"gpu"}


def test_unfinished_batches_the_nearest_deadline_first(store: Database) -> None:
    none, late, soon, done = (
        submit(store, 2, source_key=key, deadline_at=START + timedelta(hours=hours) if hours else None).batch_id
        for key, hours in (("none", 0), ("late", 9), ("soon", 2), ("done", 1))
    )
    succeed(store, claim(store, done))
    moves.pause(store, late)
    assert state(store, done) is BatchState.COMPLETED
    assert batches.unfinished(store) == [soon, late, none]
