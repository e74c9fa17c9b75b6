"""Who is told that a batch has ended: each end once, also when it came while no leader was looking."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from jobs.outcomes import Failed
from jobs.store import moves
from jobs.store.database import Database
from scheduler.endings import OVERLAP_SECONDS, Endings
from tests.support.store import START, ManualClock, claim, finish, submit, succeed


class Told:
    """What one leader after another has told."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self.said: list[Mapping[str, Any]] = []
        self.lead()

    def lead(self) -> None:
        """Another scheduler takes over."""
        self._endings = Endings(self._db, self.said.append)

    def look(self) -> list[tuple[str, str]]:
        """The batches that are told of now, with their states."""
        before = len(self.said)
        self._endings.look()
        return [(said["batch_id"], said["state"]) for said in self.said[before:]]


def test_an_end_is_told_once_with_its_counts(store: Database, store_clock: ManualClock) -> None:
    told = Told(store)
    batch = submit(store, 3).batch_id
    assert told.look() == []
    held = claim(store, batch)
    succeed(store, held[:2])
    store_clock.advance(60)
    finish(store, held[2:], Failed("too_long"))
    assert told.look() == [(batch, "completed")]
    for _ in range(3):
        store_clock.advance(10)
        assert told.look() == []
    said = told.said[0]
    assert said["event"] == "ended"
    assert said["finished_at"] == (START + timedelta(seconds=60)).isoformat()
    assert said["request_counts"] == {
        "total": 3, "succeeded": 2, "failed": 1, "expired": 0, "cancelled": 0, "reused": 0, "rejected": 0,
    }  # fmt: skip
    assert said["tokens"]["prompt"] == 1000


def test_a_batch_that_begins_and_ends_between_two_looks(store: Database, store_clock: ManualClock) -> None:
    told = Told(store)
    told.look()
    batch = submit(store, 1).batch_id
    moves.cancel(store, batch)
    store_clock.advance(10)
    assert told.look() == [(batch, "cancelled")]


def test_one_that_is_opened_again_ends_again(store: Database, store_clock: ManualClock) -> None:
    told = Told(store)
    batch = submit(store, 1).batch_id
    finish(store, claim(store, batch), Failed("too_long"))
    assert told.look() == [(batch, "completed")]
    store_clock.advance(5)
    moves.retry(store, batch, None)
    assert told.look() == []
    succeed(store, claim(store, batch))
    assert told.look() == [(batch, "completed")]


def test_a_new_leader_tells_what_the_old_one_may_have_missed_and_no_more(
    store: Database, store_clock: ManualClock
) -> None:
    told = Told(store)
    old, new = submit(store, 1).batch_id, submit(store, 1, new=True).batch_id
    succeed(store, claim(store, old))
    store_clock.advance(OVERLAP_SECONDS)
    succeed(store, claim(store, new))
    store_clock.advance(10)
    told.lead()
    assert told.look() == [(new, "completed")]


def test_a_leader_that_could_not_look_for_long_tells_all_the_same(store: Database, store_clock: ManualClock) -> None:
    told = Told(store)
    batch = submit(store, 1).batch_id
    told.look()
    succeed(store, claim(store, batch))
    store_clock.advance(3600)
    assert told.look() == [(batch, "completed")]
