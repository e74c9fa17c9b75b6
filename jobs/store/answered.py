"""Which answers there are already: an earlier batch has them, and no model is asked again."""

from sqlalchemy import String, select

from jobs.store.database import Database
from jobs.store.given import given, packed
from jobs.store.spool import AnswerKeys
from jobs.tables import jobs, results
from jobs.text import storable
from jobs.ticket import Ticket


class Answered:
    """Looks up, as a submit will, what batches other than its own have answered; it only reads."""

    def __init__(self, db: Database, batch_id: str | None, spec_hash: str, model: str) -> None:
        self._db = db
        self._keys = AnswerKeys(spec_hash, model)
        asked = given(db.dialect, "asked", answer_key=String())
        elsewhere = (  # of each key by itself, by the index: never all results at once
            select(results.c.job_id)
            .join(jobs, jobs.c.id == results.c.job_id)
            .where(results.c.answer_key == asked.c.answer_key, jobs.c.batch_id != (batch_id or ""))
            .limit(1)
            .correlate(asked)
            .scalar_subquery()
        )
        self._query = select(asked.c.answer_key).where(elsewhere.is_not(None))

    def key_of(self, ticket: Ticket) -> str:
        """The key of the answer to this ticket."""
        return self._keys.of(storable(ticket.subject), storable(ticket.body))

    def among(self, keys: set[str]) -> set[str]:
        """Those of these keys that have an answer; one statement. Raises StoreUnavailable."""
        rows = packed(self._db.dialect, [{"answer_key": key} for key in keys])
        with self._db.read() as connection:
            return set(connection.execute(self._query, rows).scalars())
