"""What runs all night takes its rows from an index, however many jobs there are."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Engine, event, text

from jobs.store import batches, claims, moves, results
from jobs.store.database import Database
from tests.support.store import claim, submit, succeed

JOBS = 30_000  # enough that reading through them is no plan to choose


@contextmanager
def statements() -> Iterator[list[tuple[str, Any]]]:
    """Everything that is sent to any database meanwhile."""
    sent: list[tuple[str, Any]] = []

    def note(_: object, __: object, statement: str, parameters: Any, context: object, is_many: bool) -> None:
        if not is_many and statement.startswith(("SELECT", "UPDATE", "WITH")):
            sent.append((statement, parameters))

    event.listen(Engine, "before_cursor_execute", note)
    yield sent
    event.remove(Engine, "before_cursor_execute", note)


def plan(db: Database, statement: str, parameters: Any) -> str:
    explain = "EXPLAIN QUERY PLAN" if db.dialect == "sqlite" else "EXPLAIN"
    with db.read() as connection:
        rows = connection.exec_driver_sql(f"{explain} {statement}", parameters).all()
    return "\n".join(str(row[-1]) for row in rows)


def reads_the_whole_table(steps: str) -> bool:
    return any(
        "Seq Scan on jobs" in step or (step.startswith("SCAN jobs") and "INDEX" not in step)
        for step in steps.splitlines()
    )


HOT: dict[str, Callable[[Database, str], object]] = {
    "claim": lambda db, batch: claim(db, batch, 32),
    "renew": lambda db, batch: claims.renew(db, {"a" * 32, "b" * 32}, 15),
    "reap": lambda db, batch: claims.reap(db),
    "finish": lambda db, batch: succeed(db, claim(db, batch, 8)),
    "runnable": lambda db, batch: batches.runnable(db),
    "status": lambda db, batch: batches.get(db, batch),
    "unfinished": lambda db, batch: batches.unfinished(db),
    "expire": lambda db, batch: moves.expire_overdue(db),
    "results": lambda db, batch: next(results.stream(db, batch)),
}


def test_no_statement_reads_through_the_jobs(database: Database) -> None:
    batch = submit(database, JOBS).batch_id
    with database.begin() as connection:
        connection.execute(text("ANALYZE"))
    claim(database, batch, 50)
    sent: dict[str, list[tuple[str, Any]]] = {}
    for name, work in HOT.items():
        with statements() as sent[name]:
            work(database, batch)

    assert all(sent.values())
    plans = {
        (name, statement): plan(database, statement, parameters)
        for name, of_name in sent.items()
        for statement, parameters in of_name
    }
    assert {which: steps for which, steps in plans.items() if reads_the_whole_table(steps)} == {}
