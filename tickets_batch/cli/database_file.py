"""The file of an open SQLite database: one that is deleted goes on being written, and nobody will ever read that."""

import os
from stat import S_ISREG

from jobs.store.database import Database
from tickets_batch.errors import UserError


class DatabaseGone(UserError):
    """What is written now is lost; the message names the file and what to do."""


class DatabaseFile:
    """Remembers which file the database is in, and sees whether it is still there. Of a server there is none to see."""

    def __init__(self, db: Database) -> None:
        self._path = db.url.database if db.dialect == "sqlite" else None
        self._was: tuple[int, int] | None = None
        self._was = self._found()

    def require(self) -> None:
        """Raises DatabaseGone when the file was deleted or moved, or another has taken its place."""
        now = self._found()
        if now == self._was:
            return
        what = "is not the one that was opened any more" if now else "is gone"
        raise DatabaseGone(
            f"the database file {self._path} {what}, and with it what was done: put it back, or a backup of it, and "
            "submit --wait again; without one, that begins anew"
        )

    def _found(self) -> tuple[int, int] | None:
        """The file that is there; the one that was where none can be seen: the database itself says what is wrong."""
        if self._path is None:
            return None
        try:
            found = os.stat(self._path)
        except FileNotFoundError:
            return None
        except OSError:
            return self._was
        return (found.st_dev, found.st_ino) if S_ISREG(found.st_mode) else self._was
