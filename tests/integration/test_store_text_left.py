"""What is left of a batch, in bytes of text: the moves that the random histories of one batch do not make."""

from datetime import datetime

import pytest

from jobs.states import BatchState
from jobs.store import batches, chunks, claims, moves, submissions
from jobs.store.database import Database
from jobs.store.spool import Spooled
from jobs.tables import jobs
from tests.support.store import (
    LEASE_SECONDS,
    START,
    ManualClock,
    assert_consistent,
    claim,
    count_rows,
    submit,
    succeed,
    ticket,
)

SUBJECT = len("Question 0")


def left(db: Database, batch: str) -> int:
    shown, worked = batches.get(db, batch), batches.work(db, batch)
    assert shown.text_bytes_left == worked.text_bytes_left
    return shown.text_bytes_left


def test_it_is_counted_in_bytes_of_utf_8(store: Database) -> None:
    batch = submit(store, [ticket(0, "abc"), ticket(1, "äöü"), ticket(2, "你好"), ticket(3, "😀")]).batch_id

    assert left(store, batch) == 4 * SUBJECT + 3 + 6 + 6 + 4


def test_what_runs_is_left_and_what_is_done_is_not(store: Database) -> None:
    batch = submit(store, [ticket(0, "a"), ticket(1, "bb")]).batch_id
    first, second = claim(store, batch)
    assert left(store, batch) == 2 * SUBJECT + 3

    succeed(store, [first])
    assert left(store, batch) == SUBJECT + 2

    succeed(store, [second])
    assert left(store, batch) == 0


def test_what_was_answered_before_is_not_left_until_its_text_changes(store: Database) -> None:
    earlier = submit(store, [ticket(0, "known")], source_key="other").batch_id
    succeed(store, claim(store, earlier))

    batch = submit(store, [ticket(0, "known"), ticket(1, "new")]).batch_id
    assert left(store, batch) == SUBJECT + 3

    submit(store, [ticket(0, "known no more")], update=True)
    assert left(store, batch) == 2 * SUBJECT + 3 + 13
    assert_consistent(store)


def test_a_changed_text_counts_instead_of_the_old_one(store: Database) -> None:
    batch = submit(store, [ticket(0, "short")]).batch_id

    submit(store, [ticket(0, "a good deal longer")], update=True)

    assert left(store, batch) == SUBJECT + 18


def test_a_job_that_kills_its_workers_is_not_left(store: Database, store_clock: ManualClock) -> None:
    batch = submit(store, [ticket(0, "poison")]).batch_id
    for _ in range(claims.REAPS):
        assert left(store, batch) == SUBJECT + 6
        claim(store, batch)
        store_clock.advance(LEASE_SECONDS)
        claims.reap(store)

    assert left(store, batch) == 0
    assert_consistent(store)


def test_a_batch_cancelled_while_its_load_is_thrown_away_keeps_the_rest_and_ends(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = chunks.put
    loads: list[str] = []
    breaking = ""

    def put(db: Database, load: chunks.Load, chunk: list[Spooled]) -> chunks.Put:
        nonlocal breaking
        if len(loads) == 3:
            breaking = load.batch_id
            raise KeyboardInterrupt
        loads.append(load.batch_id)
        return real(db, load, chunk)

    def clock() -> datetime:
        nonlocal breaking
        if breaking and count_rows(db, jobs) == 4:  # the first of three chunks has been thrown away
            batch, breaking = breaking, ""
            moves.cancel(db, batch)
        return START

    monkeypatch.setattr(submissions, "CHUNK", 2)
    monkeypatch.setattr(submissions, "DISCARDED", 2)
    monkeypatch.setattr(chunks, "put", put)
    db = Database.open(database_url, clock)

    with pytest.raises(KeyboardInterrupt):
        submit(db, 8)

    shown = batches.get(db, loads[0])
    assert (shown.state, shown.total, shown.cancelled, shown.text_bytes_left) == (BatchState.CANCELLED, 4, 4, 0)
    db.dispose()
