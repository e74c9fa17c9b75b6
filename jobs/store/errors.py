"""What can go wrong with the database itself.

UserError
├── StoreUnavailable   it cannot be reached, or refuses to work: worth trying again
└── StoreConflict      it undid a transaction that clashed with another one: worth trying again at once
"""

import sqlite3

from sqlalchemy import URL
from sqlalchemy.exc import DBAPIError, OperationalError

from jobs.text import masked
from tickets_batch.errors import UserError

CLASHES = frozenset({"40001", "40P01", "55P03"})  # serialization failure, deadlock, lock not available
# connection, authorization, no such database, resources and disk, operator intervention, system error
REFUSALS = ("08", "28", "3D", "53", "57", "58")

MEND_FILE = "see that its disk has room and works"
PRIMARY = 0xFF  # the part of an error code of SQLite's that says what kind of error it is
MAY_WRITE = "see that its directory is there, and that you may write to both: SQLite needs that even to read"
MEND_FILES = {
    sqlite3.SQLITE_NOTADB: "that file holds something else, or is damaged: put a backup in its place, or move it away",
    sqlite3.SQLITE_CORRUPT: "that file is damaged: put a backup in its place",
    sqlite3.SQLITE_FULL: "make room on its disk",
    sqlite3.SQLITE_BUSY: "another program holds it: end that, or wait for it",
    **dict.fromkeys((sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM), MAY_WRITE),
}
MEND_SERVER = "see that database_url is right and its server runs"


class StoreUnavailable(UserError):
    """The database cannot be reached or cannot work; the message names it without its password."""


class StoreConflict(UserError):
    """The database undid this transaction because it clashed with another one; the same call may well succeed now."""


def explained(error: DBAPIError | sqlite3.Error, url: URL) -> UserError | None:
    """The error as a person should read it, or None when it is a fault of this program."""
    origin = error if isinstance(error, sqlite3.Error) else error.orig
    where = url.render_as_string(hide_password=True)
    if isinstance(error, sqlite3.Error) or isinstance(origin, sqlite3.Error):
        # SQLITE_ERROR and constraint failures are our own statements' faults; the rest is the file's or the disk's
        code: int | None = getattr(origin, "sqlite_errorcode", None)
        if code in (None, sqlite3.SQLITE_ERROR) or isinstance(origin, sqlite3.IntegrityError):
            return None
        mend = MEND_FILES.get(code & PRIMARY, MEND_FILE)
        return StoreUnavailable(f"cannot use the database {where}: {origin}; {mend}")
    state: str | None = getattr(origin, "sqlstate", None)
    if state in CLASHES:
        return StoreConflict("the database undid a transaction that clashed with another one: try again")
    lost = error.connection_invalidated or (state is None and isinstance(error, OperationalError))
    if lost or (state is not None and state.startswith(REFUSALS)):
        return StoreUnavailable(f"cannot use the database {where}: {_first_line(origin, url)}; {MEND_SERVER}")
    return None


def _first_line(origin: BaseException | None, url: URL) -> str:
    lines = str(origin).strip().splitlines() or ["connection lost"]
    line = lines[0].strip()
    return masked(line, str(url.password) if url.password else None)
