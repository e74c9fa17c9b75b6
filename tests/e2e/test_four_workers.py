"""Four worker processes on one database: each ticket is taken by one of them, whatever the database."""

from collections import Counter
from itertools import combinations

import pytest
from sqlalchemy import func, select

from jobs.tables import attempts, jobs, results
from scheduler.simulation.engine.profile import EngineProfile
from tests.engine.process import EngineProcess
from tests.support.night import Night, hash_as_sent

TICKETS, WORKERS, SLOTS = 2000, 4, 40


@pytest.mark.rare
@pytest.mark.timeout(180)
@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
def test_every_ticket_exactly_once(night: Night, database: str, request: pytest.FixtureRequest) -> None:
    url = None if database == "sqlite" else request.getfixturevalue("postgresql_url")
    with EngineProcess(EngineProfile(slots=SLOTS, step_base_seconds=0.01)) as engine:
        night.configure(engine.base_url, slots=SLOTS, processes=WORKERS, lease_seconds=15, database_url=url)
        tickets = night.tickets(f"Where is parcel number {number}?" for number in range(TICKETS))
        shown = night.submit_and_wait(timeout_seconds=150)
        calls = engine.log()
    assert shown["request_counts"]["succeeded"] == TICKETS
    asked = Counter(call.ticket for call in calls)
    assert asked == Counter(hash_as_sent(body) for body in tickets.values())
    assert {call.outcome for call in calls} == {"ok"}
    assert {custom_id: row["label"] for custom_id, row in night.results().items()} == night.expected(tickets)
    assert_one_row_each(night)
    spans = spans_of_work(night)
    assert len(spans) == WORKERS
    for (first_start, first_end), (second_start, second_end) in combinations(spans, 2):
        assert max(first_start, second_start) < min(first_end, second_end), "two workers did not work at a time"
    print(f"\n{TICKETS:,} tickets on {database}, {WORKERS} workers: {shown['rate_per_second']:,.0f} tickets/s")


def assert_one_row_each(night: Night) -> None:
    with night.database().read() as connection:
        for table in (jobs, attempts, results):
            assert connection.execute(select(func.count()).select_from(table)).scalar_one() == TICKETS, table.name
        assert connection.execute(select(func.max(jobs.c.reaps))).scalar_one() == 0


def spans_of_work(night: Night) -> list[tuple[float, float]]:
    """From the first call of each worker to its last, in seconds since the Unix epoch."""
    by_worker = select(func.min(attempts.c.started_at), func.max(attempts.c.started_at)).group_by(attempts.c.worker)
    with night.database().read() as connection:
        return [(first.timestamp(), last.timestamp()) for first, last in connection.execute(by_worker)]
