"""The database as a verb needs it: reachable, and with tables of this program's version."""

from collections.abc import Iterator
from contextlib import contextmanager

from jobs.store import schema
from jobs.store.database import Database, parse
from jobs.user_database import shown
from tickets_batch.errors import UserError
from tickets_batch.local.home import Home
from tickets_batch.settings import Settings


@contextmanager
def opened(settings: Settings) -> Iterator[Database]:
    """The configured database, or the SQLite file under `home`, which is made and upgraded without asking.

    Raises UserError when it cannot be used, or when a configured one needs `tickets-batch db upgrade`.
    """
    if is_missing(settings):
        Home(settings.home).make()
    with connected(settings) as db:
        if settings.database_url is None and not schema.is_current(db):
            schema.upgrade(settings.effective_database_url)
        schema.require_current(db)
        yield db


@contextmanager
def existing(settings: Settings) -> Iterator[Database]:
    """The database for who has nothing to put into it: none is made. Raises UserError also where there is none yet."""
    if is_missing(settings):
        raise UserError(f"there is {no_batch_in(settings)}")
    with opened(settings) as db:
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
    """True when the database is a file under `home` that nobody has made yet: there is nothing to read.

    Raises UserError when `home` is something else than a directory: nobody ever will.
    """
    if settings.database_url is not None:
        return False
    home = settings.database_file.parent
    if home.exists() and not home.is_dir():
        raise UserError(f"home ({home}) is no directory: set home in tickets-batch.toml to one that you may write")
    return not settings.database_file.exists()


def no_batch_in(settings: Settings) -> str:
    """What to say where nothing was submitted yet: where that was looked for, and what to do."""
    configured = settings.database_url is not None
    place = shown(parse(settings.effective_database_url)) if configured else settings.database_file
    return f"no batch yet in {place}: tickets-batch submit makes one"
