"""Many at once, over real connections: every race has one winner, and the loser is told."""

import threading
import time
from collections import Counter
from collections.abc import Callable
from datetime import timedelta

import pytest
from sqlalchemy import select, update

from jobs.job import Finish, Job
from jobs.outcomes import Failed, Requeued, Succeeded, Symptom
from jobs.states import BatchState, JobState
from jobs.store import batches, claims, finishes, leader, moves, tally
from jobs.store.database import Database
from jobs.tables import attempts as attempts_table
from jobs.tables import jobs, leaders
from tests.support.store import assert_consistent, attempt, claim, count_rows, finish, job_rows, state, submit, succeed
from tests.support.wait import wait_until


def together(*calls: Callable[[], object]) -> None:
    """Run these at the same time; the first failure of any is raised."""
    ready = threading.Barrier(len(calls), timeout=30)
    failures: list[BaseException] = []

    def run(call: Callable[[], object]) -> None:
        try:
            ready.wait()
            call()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def lapse(db: Database) -> None:
    """Every lease has run out."""
    with db.begin() as connection:
        past = "2020-01-01 00:00:00.000000"
        connection.exec_driver_sql(f"UPDATE jobs SET lease_expires_at = '{past}' WHERE state = 'running'")


@pytest.mark.long
@pytest.mark.parametrize("verb", ["claim", "renew", "lead"])
def test_a_lease_begins_when_the_lock_that_was_in_its_way_is_gone(sqlite_url: str, verb: str) -> None:
    db = Database.open(sqlite_url)
    batch, lease_seconds = submit(db, 2).batch_id, 1.0
    (held,) = claims.claim(db, batch, 1, "one", 60)
    leader.acquire_or_renew(db, "scheduler", "a", 60)
    calls: dict[str, Callable[[], object]] = {
        "claim": lambda: claims.claim(db, batch, 1, "two", lease_seconds),
        "renew": lambda: claims.renew(db, [held.lease_token], lease_seconds),
        "lead": lambda: leader.acquire_or_renew(db, "scheduler", "a", lease_seconds),
    }
    waiting = threading.Thread(target=calls[verb])
    with db.begin():
        waiting.start()
        began = time.monotonic()
        wait_until(lambda: time.monotonic() > began + 2 * lease_seconds, "the lock to last longer than a lease")
    gone = db.now()
    waiting.join()
    with db.read() as connection:
        ends = connection.execute(select(jobs.c.lease_expires_at).where(jobs.c.state == "running")).scalars().all()
        ends = [*ends, *connection.execute(select(leaders.c.expires_at)).scalars()]
    db.dispose()
    assert [end for end in ends if end < gone + timedelta(seconds=30)], "none is the lease asked for"
    assert min(ends) >= gone


def test_sixteen_that_claim_at_once_share_the_jobs_without_a_duplicate(database: Database) -> None:
    batch = submit(database, 1_000).batch_id
    taken: list[list[Job]] = [[] for _ in range(16)]

    def run(mine: list[Job]) -> None:
        while batches.get(database, batch).pending:
            mine += claim(database, batch, 7)

    together(*(lambda mine=mine: run(mine) for mine in taken))

    counted = Counter(job.id for mine in taken for job in mine)
    assert len(counted) == 1_000
    assert set(counted.values()) == {1}
    assert_consistent(database)


def test_eight_writers_finish_a_batch_between_them(database: Database) -> None:
    batch = submit(database, 400).batch_id
    won: list[int] = []

    def run(name: str) -> None:
        while not state(database, batch).is_final:
            held = claim(database, batch, 9, name)
            back = [job for job in held[-1:] if job.requeues < 2]
            done = [job for job in held if job not in back]
            ids = finishes.write(
                database,
                [Finish(job, Succeeded("shipping"), attempt(label="shipping")) for job in done]
                + [Finish(job, Requeued(spends_attempt=True), attempt(Symptom.TIMED_OUT)) for job in back],
            )
            assert ids == {job.id for job in held}
            won.extend(job.id for job in done)

    together(*(lambda n=n: run(f"worker-{n}") for n in range(8)))

    assert sorted(won) == sorted({job.id for job in job_rows(database, batch)})
    assert batches.get(database, batch).succeeded == 400
    assert_consistent(database)


@pytest.mark.parametrize("turn", range(3))
def test_of_a_finish_and_the_reaper_one_wins(database: Database, turn: int) -> None:
    batch = submit(database, 50).batch_id
    held = claim(database, batch)
    lapse(database)
    won: set[int] = set()

    together(
        lambda: won.update(succeed(database, held[:25])),
        lambda: claims.reap(database),
        lambda: won.update(succeed(database, held[25:])),
    )

    states = {row.id: row.state for row in job_rows(database, batch)}
    assert won == {job_id for job_id, state in states.items() if state == JobState.SUCCEEDED}
    assert set(states.values()) <= {JobState.SUCCEEDED, JobState.PENDING}
    assert count_rows(database, attempts_table) == len(won)
    assert_consistent(database)


@pytest.mark.parametrize("turn", range(3))
def test_of_a_renewal_and_the_reaper_one_wins(database: Database, turn: int) -> None:
    batch = submit(database, 50).batch_id
    held = claim(database, batch)
    lapse(database)
    kept: set[int] = set()

    together(
        lambda: kept.update(claims.renew(database, {held[0].lease_token}, 15)),
        lambda: claims.reap(database),
    )

    running = {row.id for row in job_rows(database, batch) if row.state == JobState.RUNNING}
    assert kept == running
    assert claims.renew(database, {held[0].lease_token}, 15) == running
    assert_consistent(database)


@pytest.mark.parametrize("turn", range(3))
def test_of_two_zombies_and_the_holder_one_finishes(database: Database, turn: int) -> None:
    batch = submit(database, 30).batch_id
    generations = []
    for _ in range(3):
        generations.append(claim(database, batch))
        if len(generations) < 3:
            lapse(database)
            assert claims.reap(database) == 30
    won: list[set[int]] = [set(), set(), set()]

    together(
        *(
            lambda mine=mine, held=held: mine.update(succeed(database, held))
            for mine, held in zip(won, generations, strict=True)
        )
    )

    assert won == [set(), set(), {job.id for job in generations[2]}]
    assert state(database, batch) is BatchState.COMPLETED
    assert_consistent(database)


@pytest.mark.parametrize("turn", range(3))
def test_jobs_returned_while_the_batch_is_cancelled_all_end(database: Database, turn: int) -> None:
    batch = submit(database, 60).batch_id
    first, second = claim(database, batch, 15), claim(database, batch, 15)

    def back(held: list[Job]) -> None:
        for job in held:
            finish(database, [job], Requeued(is_yield=True), attempt(Symptom.WITHDRAWN))

    together(
        lambda: moves.cancel(database, batch),
        lambda: back(first),
        lambda: succeed(database, second),
        lambda: [claim(database, batch, 5, "late") for _ in range(3)],
    )
    lapse(database)  # what the late one may have got
    claims.reap(database)

    assert state(database, batch) is BatchState.CANCELLED
    counts = batches.get(database, batch)
    assert (counts.succeeded, counts.cancelled) == (15, 45)
    assert_consistent(database)


@pytest.mark.parametrize("turn", range(3))
def test_a_retry_among_finishing_workers_loses_nothing(database: Database, turn: int) -> None:
    batch = submit(database, 60).batch_id
    finish(database, claim(database, batch, 20), Failed("refused: filter"))
    held = claim(database, batch, 40)

    together(
        lambda: moves.retry(database, batch, None),
        lambda: succeed(database, held[:20]),
        lambda: succeed(database, held[20:]),
    )

    counts = batches.get(database, batch)
    assert (counts.state, counts.succeeded, counts.pending) == (BatchState.RUNNING, 40, 20)
    succeed(database, claim(database, batch))
    assert state(database, batch) is BatchState.COMPLETED
    assert_consistent(database)


@pytest.mark.parametrize("turn", range(3))
def test_a_top_up_among_finishing_workers_leaves_no_job_behind(database: Database, turn: int) -> None:
    batch = submit(database, 40).batch_id
    held = claim(database, batch)

    together(
        lambda: submit(database, 60),
        lambda: succeed(database, held[:20]),
        lambda: succeed(database, held[20:]),
    )

    counts = batches.get(database, batch)
    assert (counts.state, counts.succeeded, counts.pending) == (BatchState.RUNNING, 40, 20)
    assert_consistent(database)


def test_renewals_and_finishes_in_any_order_do_not_deadlock(database: Database) -> None:
    batch = submit(database, 300).batch_id
    held = claim(database, batch, 300)
    tokens = {held[0].lease_token}

    together(
        lambda: succeed(database, held[::-2]),
        lambda: succeed(database, held[-2::-2]),
        *[lambda: claims.renew(database, tokens, 15)] * 4,
        lambda: claims.reap(database),
    )

    assert state(database, batch) is BatchState.COMPLETED
    assert_consistent(database)


def test_a_claim_that_finds_its_batch_paused_at_the_last_moment_takes_nothing(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = submit(database, 5).batch_id
    real = tally.add

    def add(*given: object) -> object:
        if database.dialect == "postgresql":  # SQLite has locked the other out by now
            monkeypatch.undo()
            moves.pause(database, batch)
        return real(*given)  # type: ignore[arg-type]

    if database.dialect == "sqlite":
        real_now = database.now

        def now() -> object:
            monkeypatch.undo()
            moves.pause(database, batch)
            return real_now()

        monkeypatch.setattr(database, "now", now)
    monkeypatch.setattr(tally, "add", add)

    assert claim(database, batch) == []

    counts = batches.get(database, batch)
    assert (counts.state, counts.pending, counts.running) == (BatchState.PAUSED, 5, 0)
    assert_consistent(database)


def test_cancelling_waits_for_a_claim_that_has_not_committed(postgresql_url: str) -> None:
    db = Database.open(postgresql_url)
    batch = submit(db, 3).batch_id
    done: list[float] = []

    def cancel() -> None:
        moves.cancel(db, batch)
        done.append(time.monotonic())

    with db.begin() as connection:
        connection.execute(update(jobs).where(jobs.c.custom_id == "t-1").values(worker="slow"))
        thread = threading.Thread(target=cancel)
        thread.start()
        wait_until(lambda: batches.get(db, batch).cancelled == 2, "the free jobs to be cancelled")
        assert not done
    thread.join()

    assert state(db, batch) is BatchState.CANCELLED
    assert_consistent(db)
    db.dispose()
