"""What a night promises whatever is killed: every ticket answered, committed once, and few answers paid for twice."""

from collections import Counter

from sqlalchemy import func, select

from jobs.tables import attempts
from tests.engine.process import EngineHandle
from tests.support.night import Night, hash_as_sent

SLOTS, CHAT_SLOTS = 20, 4
UNFLUSHED = 32  # results that a worker may have in hand and not yet in SQL: design section 1


def most_repeated(workers_killed: int) -> int:
    """How many answers may be paid for twice: those in flight, and one unflushed write for each killed worker."""
    return SLOTS - CHAT_SLOTS + UNFLUSHED * workers_killed


def assert_kept(night: Night, tickets: dict[str, str], engine: EngineHandle, most_repeats: int) -> None:
    """Every ticket has its own answer, committed once, and at most so many calls succeeded for nothing."""
    rows = night.results()
    assert {custom_id: row["label"] for custom_id, row in rows.items()} == night.expected(tickets)
    with night.database().read() as connection:
        committed = select(func.count()).select_from(attempts).where(attempts.c.label.is_not(None))
        assert connection.execute(committed).scalar_one() == len(tickets)
    answered = Counter(call.ticket for call in engine.log() if call.outcome == "ok")
    assert set(answered) == {hash_as_sent(body) for body in tickets.values()}
    repeated = answered.total() - len(tickets)
    print(f"\n{answered.total()} answers for {len(tickets)} tickets: {repeated} twice, at most {most_repeats} promised")
    assert repeated <= most_repeats
