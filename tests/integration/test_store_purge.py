"""Retention: what a purge takes, what it leaves, and who comes first where it meets others."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import LargeBinary, String, cast, func, select, update

from jobs.outcomes import Failed, Requeued, Symptom
from jobs.states import BatchState
from jobs.store import batches, events, loading, moves, purge, results, texts
from jobs.store.database import Database
from jobs.store.purge import Purged
from jobs.tables import batches as batches_table
from jobs.tables import metadata, tickets
from jobs.ticket import Rejection
from tests.support.store import (
    START,
    ManualClock,
    assert_consistent,
    attempt,
    claim,
    count_rows,
    finish,
    job_rows,
    state,
    submit,
    succeed,
    ticket,
)
from tickets_batch.errors import UserError

SECRET = "Kestrelwood"
DAY = timedelta(days=1)


def secret_ticket(number: int) -> Any:
    return ticket(number, f"I am Ms {SECRET} of house {number}.")


def quoting(detail: str = f"HTTP 400: the engine refuses this request (Ms {SECRET})") -> Any:
    return attempt(Symptom.INVALID_OUTPUT, raw=f"The ticket of Ms {SECRET} is about", detail=detail)


def ended(db: Database) -> str:
    """A batch that has ended, with its text wherever text can be."""
    rows = [*map(secret_ticket, range(4)), Rejection(9, f"date {SECRET!r} cannot be read", f"{SECRET}?")]
    batch = submit(db, rows, source_key=f"of {START}").batch_id
    first, second, *rest = claim(db, batch)
    blocked = Requeued(blocked=f"HTTP 404: the engine does not serve this model (for {SECRET})")
    finish(db, [first], blocked, attempt(Symptom.BLOCKED, detail=f"HTTP 404: no such model (for {SECRET})"))
    finish(db, [second], Failed(f"invalid_output: said {SECRET}"), quoting())
    succeed(db, rest)
    succeed(db, claim(db, batch))
    assert state(db, batch) is BatchState.COMPLETED
    return batch


def found_in(db: Database, word: str = SECRET) -> set[str]:
    """Every column of every table in which the word stands."""
    places = set()
    with db.read() as connection:
        for table in metadata.sorted_tables:
            for column in table.columns:
                if isinstance(column.type, LargeBinary):
                    continue
                holds = select(func.count()).select_from(table).where(cast(column, String).contains(word))
                if connection.execute(holds).scalar_one():
                    places.add(f"{table.name}.{column.name}")
    return places


def purge_all(db: Database, older_than: timedelta = timedelta(0)) -> list[Purged]:
    return list(purge.purge_ended(db, older_than))


def test_no_column_keeps_any_text(store: Database, store_clock: ManualClock) -> None:
    batch = ended(store)
    assert found_in(store) == {
        *("tickets.body", "attempts.detail", "results.raw", "jobs.error", "events.detail"),
        *("rejections.reason", "rejections.custom_id"),
    }
    store_clock.advance(1)

    [done] = purge_all(store)

    assert found_in(store) == set()
    assert count_rows(store, tickets) == 0
    assert (done.batch_id, done.texts, done.answers, done.details, done.rejections) == (batch, 4, 1, 3, 1)
    assert done.text_bytes == sum(row.text_bytes for row in job_rows(store, batch))
    [event] = events.recent(store, batch, 1)
    assert (event.kind, event.detail["texts"]) == ("purged", 4)


def test_ids_labels_counts_and_costs_stay(store: Database, store_clock: ManualClock) -> None:
    batch = ended(store)
    shown, rows = batches.get(store, batch), list(results.stream(store, batch))
    store_clock.advance(1)
    purge_all(store)

    assert batches.get(store, batch) == shown
    kept = list(results.stream(store, batch))
    assert [(row.custom_id, row.label, row.prompt_tokens, row.state) for row in kept] == [
        (row.custom_id, row.label, row.prompt_tokens, row.state) for row in rows
    ]
    assert [row.error for row in kept if row.error] == ["invalid_output"]


@pytest.mark.parametrize("turn", ["once", "twice"])
def test_it_takes_what_ended_so_long_ago_and_is_done_with_it(
    store: Database, store_clock: ManualClock, turn: str
) -> None:
    old = ended(store)
    store_clock.advance(3 * 86_400)
    young = submit(store, [secret_ticket(7)], source_key="young").batch_id
    succeed(store, claim(store, young))
    still_open = submit(store, [secret_ticket(8)], source_key="open").batch_id

    assert purge.due(store, store.now() - 2 * DAY) == [old]
    assert purge.left_open(store, store.now() + DAY) == [still_open]
    assert [done.batch_id for done in purge_all(store, 2 * DAY)] == [old]
    if turn == "twice":
        assert purge_all(store, 2 * DAY) == []
    assert found_in(store) == {"tickets.body"}
    assert [job.body for job in claim(store, still_open)] == [f"I am Ms {SECRET} of house 8."]
    assert_consistent(store)


def test_a_forecast_of_it_is_what_it_does(store: Database, store_clock: ManualClock) -> None:
    batch = ended(store)
    store_clock.advance(1)
    foreseen = purge.foresee(store, batch)

    assert found_in(store)
    assert purge_all(store) == [foreseen]
    assert purge.foresee(store, batch).is_nothing


def test_the_same_tickets_are_still_the_same_batch(store: Database, store_clock: ManualClock) -> None:
    batch = ended(store)
    store_clock.advance(1)
    purge_all(store)

    again = submit(store, map(secret_ticket, range(4)), source_key=f"of {START}")

    assert (again.batch_id, again.already, again.added, again.changed) == (batch, 4, 0, 0)
    assert state(store, batch) is BatchState.COMPLETED
    assert found_in(store) == set()


def test_a_second_batch_of_them_takes_over_the_labels(store: Database, store_clock: ManualClock) -> None:
    ended(store)
    store_clock.advance(1)
    purge_all(store)

    again = submit(store, map(secret_ticket, range(4)), source_key=f"of {START}", new=True)

    assert (again.added, again.reused) == (4, 3)


def test_what_comes_later_is_done_and_purged_in_its_turn(store: Database, store_clock: ManualClock) -> None:
    batch = ended(store)
    store_clock.advance(1)
    purge_all(store)

    more = submit(store, [*map(secret_ticket, range(4)), secret_ticket(11)], source_key=f"of {START}")
    assert (more.batch_id, more.added, more.reopened) == (batch, 1, True)
    [job] = claim(store, batch)
    assert job.body == f"I am Ms {SECRET} of house 11."
    assert purge.purge(store, batch, store.now() + DAY) is None  # it runs again
    succeed(store, [job])
    store_clock.advance(1)

    assert [done.texts for done in purge_all(store)] == [1]
    assert found_in(store) == set()


def test_a_changed_text_comes_in_where_the_old_one_was_removed(store: Database, store_clock: ManualClock) -> None:
    batch = ended(store)
    store_clock.advance(1)
    purge_all(store)

    done = submit(store, [ticket(0, "Quite another matter.")], source_key=f"of {START}", update=True)

    assert (done.updated, done.reopened) == (1, True)
    assert [job.body for job in claim(store, batch)] == ["Quite another matter."]
    assert_consistent(store)


class TestRetry:
    def test_without_text_it_says_what_to_do(self, store: Database, store_clock: ManualClock) -> None:
        batch = ended(store)
        store_clock.advance(1)
        purge_all(store)

        with pytest.raises(UserError, match=f"the text of batch {batch} was removed on 2026-11-30, .* with --new"):
            moves.retry(store, batch, None)

        assert state(store, batch) is BatchState.COMPLETED
        assert texts.missing(store, batch) == 1

    def test_what_has_its_text_is_tried_again(self, store: Database, store_clock: ManualClock) -> None:
        batch = ended(store)
        store_clock.advance(1)
        purge_all(store)
        submit(store, [ticket(20)], source_key=f"of {START}")
        finish(store, claim(store, batch), Failed("refused: filter"), attempt(Symptom.REFUSED))

        assert moves.retry(store, batch, None) == 1

        assert [job.custom_id for job in claim(store, batch)] == ["t-20"]
        assert texts.missing(store, batch) == 1


class TestRaces:
    """Each from the loser's side."""

    @pytest.fixture
    def chunks(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Of one job each, so that there is a moment between two."""
        monkeypatch.setattr(purge, "CHUNK", 1)

    @staticmethod
    def meanwhile(monkeypatch: pytest.MonkeyPatch, act: Any) -> None:
        """`act` comes when the purge has done one chunk and is about to do the next."""
        real, calls = purge._purge_chunk, []

        def chunk(*given: Any) -> Any:
            calls.append(given)
            if len(calls) == 2:
                act()
            return real(*given)

        monkeypatch.setattr(purge, "_purge_chunk", chunk)

    @pytest.mark.usefixtures("chunks")
    def test_a_retry_goes_first_and_keeps_what_text_there_is(
        self, store: Database, store_clock: ManualClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        batch = ended(store)
        store_clock.advance(1)
        self.meanwhile(monkeypatch, lambda: moves.retry(store, batch, None))

        [done] = purge_all(store)

        assert (done.texts, done.is_whole) == (1, False)
        [job] = claim(store, batch)
        assert (job.custom_id, job.body) == ("t-1", f"I am Ms {SECRET} of house 1.")
        succeed(store, [job])
        store_clock.advance(1)
        monkeypatch.undo()
        assert [one.texts for one in purge_all(store)] == [3]
        assert found_in(store) == set()

    @pytest.mark.usefixtures("chunks")
    def test_a_submit_goes_first(
        self, store: Database, store_clock: ManualClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        batch = ended(store)
        store_clock.advance(1)
        self.meanwhile(monkeypatch, lambda: submit(store, [secret_ticket(30)], source_key=f"of {START}"))

        [done] = purge_all(store)

        assert (done.texts, done.is_whole) == (1, False)
        assert [job.body for job in claim(store, batch)] == [f"I am Ms {SECRET} of house 30."]

    @pytest.mark.usefixtures("chunks")
    def test_a_second_purge_leaves_the_batch_to_the_first(
        self, store: Database, store_clock: ManualClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        batch = ended(store)
        store_clock.advance(1)
        second: list[object] = []
        self.meanwhile(monkeypatch, lambda: second.append(purge.purge(store, batch, store.now())))

        [done] = purge_all(store)

        assert second == [None]
        assert (done.texts, done.is_whole) == (4, True)

    def test_a_loader_is_not_disturbed(self, store: Database, store_clock: ManualClock) -> None:
        batch = ended(store)
        store_clock.advance(1)
        with store.begin() as connection:
            row = connection.execute(select(batches_table)).one()
            loading.take(connection, row, store.now())

        assert purge_all(store) == []
        assert batches.get(store, batch).state is BatchState.COMPLETED
        assert "tickets.body" in found_in(store)

    @pytest.mark.usefixtures("chunks")
    def test_one_that_was_killed_is_taken_up_again(
        self, store: Database, store_clock: ManualClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        batch = ended(store)
        store_clock.advance(1)

        def die() -> None:
            raise KeyboardInterrupt

        self.meanwhile(monkeypatch, die)
        with pytest.raises(KeyboardInterrupt):
            purge_all(store)
        monkeypatch.undo()
        assert purge_all(store) == []  # its right may still be in use

        store_clock.advance(loading.LOADER_SECONDS + 1)
        [done] = purge_all(store)
        assert (done.texts, done.is_whole) == (3, True)
        assert found_in(store) == set()
        assert batches.get(store, batch).succeeded == 3


def test_nothing_of_it_is_left_in_the_files_of_sqlite(sqlite_url: str, store_clock: ManualClock) -> None:
    db = Database.open(sqlite_url, store_clock)
    ended(db)
    folder = Path(str(db.url.database)).parent

    def files_with_it() -> list[str]:
        return [file.name for file in folder.iterdir() if SECRET.encode() in file.read_bytes()]

    assert files_with_it()
    store_clock.advance(1)
    purge_all(db)
    assert files_with_it() == []
    db.dispose()


def test_a_long_text_goes_as_well_as_a_short_one(store: Database, store_clock: ManualClock) -> None:
    batch = submit(store, [ticket(0, SECRET * 20_000), *map(ticket, range(1, 2_500))]).batch_id
    while held := claim(store, batch, 500):
        succeed(store, held)
    store_clock.advance(1)

    [done] = purge_all(store)

    assert done.texts == 2_500
    assert found_in(store) == set()


def test_an_end_in_the_same_moment_is_not_before_it(store: Database) -> None:
    ended(store)
    assert purge_all(store) == []
    with store.begin() as connection:
        connection.execute(update(batches_table).values(finished_at=START - timedelta(seconds=1)))
    assert len(purge_all(store)) == 1


@pytest.mark.parametrize("turn", range(3))
def test_a_purge_a_retry_and_a_submit_at_once_leave_no_job_without_text(
    database: Database, monkeypatch: pytest.MonkeyPatch, turn: int
) -> None:
    monkeypatch.setattr(purge, "CHUNK", 10)
    batch = submit(database, 200).batch_id
    held = claim(database, batch, 200)
    succeed(database, held[::2])
    finish(database, held[1::2], Failed("refused: filter"))
    before = database.now() + DAY

    def unless_refused(act: Callable[[], object]) -> None:
        with suppress(UserError):  # of two that load one is refused, and nothing is retried without text
            act()

    acts: list[Callable[[], object]] = [
        lambda: [purge.purge(database, batch, before) for _ in range(3)],
        lambda: unless_refused(lambda: moves.retry(database, batch, None)),
        lambda: unless_refused(lambda: submit(database, 230)),
    ]
    with ThreadPoolExecutor(len(acts)) as threads:
        for done in [threads.submit(act) for act in acts]:
            done.result(timeout=60)

    assert_consistent(database)
    while batches.get(database, batch).pending:
        succeed(database, claim(database, batch, 50))
    assert_consistent(database)
    purge.purge(database, batch, before)
    assert count_rows(database, tickets) == 0
