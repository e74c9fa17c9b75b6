"""Who is at work, who leads, and what has happened."""

import threading

from jobs.store import events, leader, services
from jobs.store.database import Database
from jobs.store.events import EventKind
from tests.support.store import START, ManualClock, submit

FIRST_EPOCH = int(START.timestamp())


def beat(store: Database, role: str, id: str, **detail: object) -> None:
    services.beat(store, role, id, "host", 42, detail)


def test_a_service_is_alive_while_it_beats(store: Database, store_clock: ManualClock) -> None:
    beat(store, "worker", "w1", jobs=3)
    beat(store, "scheduler", "s1")
    store_clock.advance(10)
    beat(store, "worker", "w1", jobs=4)

    (found,) = services.alive(store, "worker")
    assert (found.id, found.host, found.pid, found.detail) == ("w1", "host", 42, {"jobs": 4})
    assert (found.started_at, found.heartbeat_at) == (START, store_clock())
    assert [service.role for service in services.alive(store)] == ["scheduler", "worker"]
    store_clock.advance(5)
    assert [service.role for service in services.alive(store)] == ["worker"]


def test_a_service_that_ends_says_so_and_a_killed_one_is_forgotten(store: Database, store_clock: ManualClock) -> None:
    for name in ("w1", "w2", "w3"):
        beat(store, "worker", name)
    services.leave(store, "worker", "w1")
    assert [service.id for service in services.alive(store)] == ["w2", "w3"]
    store_clock.advance(3600)
    beat(store, "worker", "w3")

    assert services.forget(store, silent_seconds=3600) == 1

    assert [service.id for service in services.alive(store, within_seconds=1e6)] == ["w3"]


def test_one_leads_and_renews_under_the_same_epoch(store: Database, store_clock: ManualClock) -> None:
    assert leader.acquire_or_renew(store, "scheduler", "a", 5) == FIRST_EPOCH
    assert leader.acquire_or_renew(store, "scheduler", "b", 5) is None
    store_clock.advance(4.9)
    assert leader.acquire_or_renew(store, "scheduler", "a", 5) == FIRST_EPOCH
    store_clock.advance(4.9)
    assert leader.acquire_or_renew(store, "scheduler", "b", 5) is None
    assert leader.acquire_or_renew(store, "another lease", "b", 5) == int(store_clock.instant.timestamp())


def test_a_lease_that_ran_out_goes_to_the_next_under_a_higher_epoch(store: Database, store_clock: ManualClock) -> None:
    leader.acquire_or_renew(store, "scheduler", "a", 5)
    store_clock.advance(5)

    assert leader.acquire_or_renew(store, "scheduler", "b", 5) == FIRST_EPOCH + 5
    assert leader.acquire_or_renew(store, "scheduler", "a", 5) is None


def test_a_leader_that_was_late_itself_gets_a_new_epoch(store: Database, store_clock: ManualClock) -> None:
    leader.acquire_or_renew(store, "scheduler", "a", 5)
    store_clock.advance(5)

    assert leader.acquire_or_renew(store, "scheduler", "a", 5) == FIRST_EPOCH + 5


def test_a_leader_that_resigns_is_followed_at_once(store: Database) -> None:
    leader.acquire_or_renew(store, "scheduler", "a", 5)
    leader.resign(store, "scheduler", "b")  # which does not lead
    assert leader.acquire_or_renew(store, "scheduler", "b", 5) is None

    leader.resign(store, "scheduler", "a")

    assert leader.acquire_or_renew(store, "scheduler", "b", 5) == FIRST_EPOCH + 1


def test_of_eight_that_begin_at_once_one_leads(store: Database) -> None:
    ready, epochs = threading.Barrier(8, timeout=20), []

    def run(name: str) -> None:
        ready.wait()
        epochs.append(leader.acquire_or_renew(store, "scheduler", name, 5))

    threads = [threading.Thread(target=run, args=(f"s{n}",)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(epochs, key=str) == [FIRST_EPOCH, *[None] * 7]


def test_events_come_newest_first_of_one_batch_or_of_all(store: Database, store_clock: ManualClock) -> None:
    batch = submit(store, 1).batch_id
    store_clock.advance(1)
    events.record(store, EventKind.BLOCKED, batch, why="nul \0 and \udc00", nested={"\0": ["\ud83d", 1, float("inf")]})
    events.record(store, EventKind.LIMIT, pool="gpu")

    newest, *_ = events.recent(store, batch)
    assert (newest.kind, newest.at, newest.batch_id) == ("blocked", store_clock(), batch)
    assert newest.detail == {"why": "nul \ufffd and \ufffd", "nested": {"\ufffd": ["\ufffd", 1, None]}}
    assert [event.kind for event in events.recent(store)] == ["limit", "blocked", "submitted"]
    assert [event.kind for event in events.recent(store, limit=1)] == ["limit"]
