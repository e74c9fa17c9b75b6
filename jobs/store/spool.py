"""A source read to its end before the database is touched: on disk, in a private file that goes when it is closed.

So a source that turns out to be unusable half-way has changed nothing, a ticket that comes twice is found whatever the
size of the source, and memory stays flat.
"""

import hashlib
import sqlite3
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import NamedTuple, Self

from jobs.text import storable
from jobs.ticket import Rejection, Ticket

KEPT_REJECTIONS = 10_000  # listed with their reasons; all are counted
CACHE_KIB = 64 * 1024
AT_ONCE = 200  # tickets to a write
AT_ONCE_CHARACTERS = 1_000_000  # or so much text: a ticket may be large
ID_CHARACTERS = 500  # an index of PostgreSQL holds no more than 2,700 bytes to an entry
HIGHEST_PRIORITY = 2**31 - 1


class Spooled(NamedTuple):
    """One usable ticket, its text fit for any database; equal `answer_key`s will get equal answers."""

    custom_id: str
    subject: str
    body: str
    priority: int
    answer_key: str

    @property
    def text_bytes(self) -> int:
        """The length of subject and body in UTF-8."""
        return _bytes(self.subject) + _bytes(self.body)


class AnswerKeys:
    """The keys of the answers that a model gives under a spec; the texts must be fit for any database."""

    def __init__(self, spec_hash: str, model: str) -> None:
        self._asked = hashlib.sha256(f"{spec_hash}\n{model}\n".encode())

    def of(self, subject: str, body: str) -> str:
        """The key of the answer to a ticket of this text."""
        digest = self._asked.copy()
        digest.update(f"{len(subject)}\n{subject}{body}".encode())
        return digest.hexdigest()[:32]


class Spool:
    """The usable tickets of a source in their order, each id once, and the rows that cannot be used."""

    def __init__(self, spec_hash: str, model: str) -> None:
        self.tickets = 0
        self.rejected = 0
        self.rejections: list[Rejection] = []
        self._waiting: list[tuple[str, str, str, int, str, int]] = []
        self._waiting_characters = 0
        self._keys = AnswerKeys(spec_hash, model)
        self._file = sqlite3.connect("", isolation_level=None)  # no name: a temporary file, deleted when it is closed
        self._cursor = self._file.cursor()
        for statement in (
            f"PRAGMA cache_size = -{CACHE_KIB}",
            "PRAGMA journal_mode = OFF",
            "CREATE TABLE tickets (custom_id TEXT UNIQUE, subject TEXT, body TEXT, priority INT, key TEXT, line INT)",
            "BEGIN",
        ):
            self._cursor.execute(statement)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._file.close()

    def fill(self, rows: Iterable[Ticket | Rejection]) -> None:
        """Read the source to its end; what it raises goes through."""
        for row in rows:
            if isinstance(row, Rejection):
                self._write()
                self._reject(row)
            else:
                self._keep(row)
        self._write()

    def chunks(self, size: int) -> Iterator[list[Spooled]]:
        """The tickets in the order of the source, `size` at a time."""
        self._cursor.execute("SELECT custom_id, subject, body, priority, key FROM tickets ORDER BY rowid")
        while found := self._cursor.fetchmany(size):
            yield [Spooled(*row) for row in found]

    def _keep(self, ticket: Ticket) -> None:
        custom_id, subject, body = storable(ticket.custom_id), storable(ticket.subject), storable(ticket.body)
        if len(custom_id) > ID_CHARACTERS:
            self._write()
            reason = f"id is longer than {ID_CHARACTERS} characters"
            self._reject(Rejection(ticket.line, reason, custom_id[:ID_CHARACTERS]))
            return
        key = self._keys.of(subject, body)
        priority = max(-HIGHEST_PRIORITY, min(ticket.priority, HIGHEST_PRIORITY))
        self._waiting.append((custom_id, subject, body, priority, key, ticket.line))
        self._waiting_characters += len(subject) + len(body)
        if len(self._waiting) >= AT_ONCE or self._waiting_characters >= AT_ONCE_CHARACTERS:
            self._write()

    def _write(self) -> None:
        """Those that wait go in, in their order; one whose id is there already is rejected when its turn comes."""
        waiting, self._waiting, self._waiting_characters = self._waiting, [], 0
        while waiting:
            before = self._file.total_changes
            try:
                self._cursor.executemany("INSERT INTO tickets VALUES (?, ?, ?, ?, ?, ?)", waiting)
            except sqlite3.IntegrityError:
                written = self._file.total_changes - before
                self._reject_duplicate(waiting[written])
                waiting = waiting[written + 1 :]
            else:
                written = len(waiting)
                waiting = []
            self.tickets += written

    def _reject_duplicate(self, row: tuple[str, str, str, int, str, int]) -> None:
        custom_id, _, _, _, key, line = row
        first = self._cursor.execute("SELECT line, key FROM tickets WHERE custom_id = ?", (custom_id,)).fetchone()
        what = "the same text" if first[1] == key else "another text"
        self._reject(Rejection(line, f"duplicate id, first at line {first[0]} with {what}", custom_id))

    def _reject(self, row: Rejection) -> None:
        self.rejected += 1
        if len(self.rejections) < KEPT_REJECTIONS:
            self.rejections.append(row)


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())
