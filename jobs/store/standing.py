"""What of a source a batch has already, told ticket by ticket before anything is submitted."""

from sqlalchemy import select

from jobs.store.database import Database
from jobs.store.spool import AnswerKeys
from jobs.tables import jobs
from jobs.text import storable
from jobs.ticket import Standing, Ticket

ROWS_AT_A_TIME = 5_000


class Standings:
    """The tickets of one batch, each remembered by two hashes, about 150 bytes."""

    def __init__(self, keys: AnswerKeys, ids: set[int], texts: set[int]) -> None:
        self._keys = keys
        self._ids = ids
        self._texts = texts

    @classmethod
    def of(cls, db: Database, batch_id: str | None, spec_hash: str, model: str) -> "Standings":
        """Those of a batch; of none, every ticket is new. Raises StoreUnavailable."""
        ids: set[int] = set()
        texts: set[int] = set()
        if batch_id is not None:
            query = select(jobs.c.custom_id, jobs.c.answer_key).where(jobs.c.batch_id == batch_id)
            with db.read() as connection:
                for custom_id, key in connection.execution_options(yield_per=ROWS_AT_A_TIME).execute(query):
                    ids.add(hash(custom_id))
                    texts.add(hash((custom_id, key)))
        return cls(AnswerKeys(spec_hash, model), ids, texts)

    def __call__(self, ticket: Ticket) -> Standing:
        """How this ticket stands."""
        custom_id = storable(ticket.custom_id)
        if hash(custom_id) not in self._ids:
            return Standing.NEW
        key = self._keys.of(storable(ticket.subject), storable(ticket.body))
        return Standing.ALREADY if hash((custom_id, key)) in self._texts else Standing.CHANGED
