"""The version of the tables: bring it up to date, or say that it is not."""

from sqlalchemy import Connection, func, inspect, select, text

from jobs.store.database import Database
from tickets_batch.errors import UserError

VERSION = "0003"  # the newest in migrations/versions
LOCK_KEY = 7_104_202  # the advisory lock under which the tables are changed
UPGRADE_SECONDS = 3_600.0  # for one statement: an index of many millions of rows, or another's whole upgrade


def upgrade(url: str) -> None:
    """Bring the tables up to this program's version, in one transaction and one process at a time.

    Raises StoreUnavailable; UserError when the database is newer than this program.
    """
    from alembic import command  # only here: it takes a while to import, and every other command goes without
    from alembic.config import Config

    database = Database.open(url)
    try:
        with database.begin() as connection:  # on SQLite, BEGIN IMMEDIATE keeps the others out
            if database.dialect == "postgresql":
                from jobs.store import silence  # only here: with SQLite the driver is not needed

                silence.allow(connection, UPGRADE_SECONDS)
                connection.execute(select(func.pg_advisory_xact_lock(LOCK_KEY)))
            if _is_newer(version := _version(connection)):
                raise UserError(_too_new(version))
            config = Config()
            config.set_main_option("script_location", "migrations:")
            config.attributes["connection"] = connection
            command.upgrade(config, "head")
    finally:
        database.dispose()


def is_current(db: Database) -> bool:
    """True when the tables are of this program's version. Raises StoreUnavailable."""
    with db.read() as connection:
        return _version(connection) == VERSION


def is_behind(db: Database) -> bool:
    """True when `upgrade` brings the tables to this program's version. Raises StoreUnavailable."""
    with db.read() as connection:
        version = _version(connection)
    return version != VERSION and not _is_newer(version)


def require_current(db: Database) -> None:
    """Raises UserError, which says what to do, unless the tables are of this program's version; StoreUnavailable."""
    with db.read() as connection:
        version = _version(connection)
    if version == VERSION:
        return
    if version is None:
        raise UserError("the database has no tables yet: run tickets-batch db upgrade")
    if _is_newer(version):
        raise UserError(_too_new(version))
    raise UserError(f"the database is at version {version}, this program needs {VERSION}: run tickets-batch db upgrade")


def _version(connection: Connection) -> str | None:
    if not inspect(connection).has_table("alembic_version"):
        return None
    version: str | None = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
    return version


def _is_newer(version: str | None) -> bool:
    return version is not None and version > VERSION


def _too_new(version: str | None) -> str:
    return f"the database is at version {version}, this program knows only {VERSION}: install a newer tickets-batch"
