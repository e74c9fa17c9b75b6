"""The database as a verb needs it: reachable, and with tables of this program's version."""

from collections.abc import Iterator
from contextlib import contextmanager

from jobs.store import schema
from jobs.store.database import Database
from tickets_batch.local.home import Home
from tickets_batch.settings import Settings


@contextmanager
def opened(settings: Settings) -> Iterator[Database]:
    """The configured database, or the SQLite file under `home`, which is made and upgraded without asking.

    Raises UserError when it cannot be used, or when a configured one needs `tickets-batch db upgrade`.
    """
    if settings.database_url is None:
        Home(settings.home).make()
    with connected(settings) as db:
        if settings.database_url is None and not schema.is_current(db):
            schema.upgrade(settings.effective_database_url)
        schema.require_current(db)
        yield db


@contextmanager
def connected(settings: Settings) -> Iterator[Database]:
    """The database whatever its version. Raises SettingsError when its URL is none."""
    db = Database.open(settings.effective_database_url)
    try:
        yield db
    finally:
        db.dispose()


def is_missing(settings: Settings) -> bool:
    """True when the database is a file under `home` that nobody has made yet: there is nothing to read."""
    return settings.database_url is None and not settings.database_file.exists()
