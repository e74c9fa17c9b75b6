"""Many rows in one go arrive as they were given, or not at all."""

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import select, text
from sqlalchemy.exc import IntegrityError

from jobs.store import bulk
from jobs.store.chunks import JOB_COLUMNS, TEXT_COLUMNS
from jobs.store.database import Database
from jobs.store.errors import StoreUnavailable
from jobs.tables import jobs, tickets
from jobs.ticket import Ticket
from tests.support.databases import PostgreSQL
from tests.support.store import START, assert_consistent, claim, count_rows, job_rows, submit, succeed

ODD = [
    *("\\N", "\\.", "a\tb", "a\nb\r\nc", "\\t\\n\\\\", "\"quoted\", 'twice'", "NULL", "{1,2}"),
    *("=1+1", "\u202eabc\u200b", "\N{GRINNING FACE}", "\\"),
]


def job_row(id_: int, batch_id: str, custom_id: str) -> tuple[Any, ...]:
    return id_, batch_id, custom_id, "k" * 32, 0, 4, "pending", False, False, None


def test_text_that_means_something_to_the_database_arrives_as_it_is(database: Database) -> None:
    batch_id = submit(database, [Ticket(odd, odd, odd) for odd in ODD]).batch_id

    assert [row.custom_id for row in job_rows(database, batch_id)] == ODD
    with database.read() as connection:
        found = connection.execute(select(tickets).order_by(tickets.c.job_id)).all()
    assert [(row.subject, row.body) for row in found] == [(odd, odd) for odd in ODD]
    assert_consistent(database)


def test_an_instant_is_read_back_as_it_was_given(store: Database) -> None:
    batch_id = submit(store, 1).batch_id
    succeed(store, claim(store, batch_id))
    again = submit(store, 1, source_key="another day").batch_id  # the answer is there: the job is done as it goes in

    (row,) = job_rows(store, again)
    assert (row.reused, row.finished_at) == (True, START)
    with store.read() as connection:
        found = select(jobs.c.id).where(jobs.c.finished_at == START, jobs.c.reused)  # as the database compares it
        assert connection.execute(found).scalar() == row.id


def test_ids_ascend_and_are_given_once(database: Database) -> None:
    batch_id = submit(database, 3).batch_id
    with database.begin() as connection:
        ids = bulk.take_job_ids(connection, 5)
        bulk.insert_rows(connection, jobs, JOB_COLUMNS, (job_row(id_, batch_id, f"more {id_}") for id_ in ids))
        more = bulk.take_job_ids(connection, 2)

    assert ids == sorted(set(ids))
    assert min(ids) > max(row.id for row in job_rows(database, batch_id)[:3])
    assert min(more) > max(ids)


def test_a_row_that_is_there_already_is_an_error_and_none_of_them_stays(database: Database) -> None:
    batch_id = submit(database, 3).batch_id
    there = job_rows(database, batch_id)[0].custom_id

    def put_in() -> None:
        with database.begin() as connection:
            ids = bulk.take_job_ids(connection, 2)
            rows = [job_row(id_, batch_id, name) for id_, name in zip(ids, ("new", there), strict=True)]
            bulk.insert_rows(connection, jobs, JOB_COLUMNS, rows)

    with pytest.raises(IntegrityError):
        put_in()

    assert count_rows(database, jobs) == 3
    assert_consistent(database)


def test_a_connection_that_is_lost_midway_leaves_nothing_and_is_not_used_again(
    postgresql: PostgreSQL, postgresql_url: str
) -> None:
    db = Database.open(postgresql_url)
    submit(db, 1)

    def cut_off(pid: int) -> Iterator[tuple[Any, ...]]:
        for number in range(100_000):
            if number == 100:
                postgresql.run(f"SELECT pg_terminate_backend({pid}, 5000)")
            yield number, "subject", "body " * 100

    def put_in() -> None:
        with db.begin() as connection:
            pid = connection.execute(text("SELECT pg_backend_pid()")).scalar_one()
            bulk.insert_rows(connection, tickets, TEXT_COLUMNS, cut_off(pid))

    with pytest.raises(StoreUnavailable, match="cannot use the database"):
        put_in()

    assert count_rows(db, tickets) == 1
    assert submit(db, 2).added == 1
    db.dispose()
