"""Databases that are the user's own: tickets come from there, or results go there.

`key` is the setting that names the database; errors begin with it and never hold a password.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import URL, Engine, create_engine, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError, OperationalError, SQLAlchemyError
from sqlalchemy.pool import NullPool

from jobs.text import masked
from tickets_batch.errors import UserError

CONNECT_SECONDS = 10
LOCK_SECONDS = 30  # how long to wait for another program's transaction on SQLite
PASSWORDS = ("password", "passwd", "sslpassword")  # where a URL's options may hold one


def parsed(url: str, key: str) -> URL:
    """The URL. Raises UserError when it is none."""
    try:
        return make_url(url)
    except (ArgumentError, ValueError) as error:
        raise UserError(
            f'{key} is not a database URL; write for example "postgresql+psycopg://user@host/db"'
        ) from error


def engine_of(url: str, key: str) -> Engine:
    """An engine that keeps no connection; nothing is connected yet. Raises UserError."""
    where = parsed(url, key)
    kind = where.get_backend_name()
    if kind == "sqlite" and not Path(where.database or "").is_file():  # SQLite would make an empty one
        raise UserError(f"{key}: there is no database file {where.database or '(no path given)'}")
    patience = {"postgresql": {"connect_timeout": CONNECT_SECONDS}, "sqlite": {"timeout": LOCK_SECONDS}}.get(kind, {})
    try:
        return create_engine(where, poolclass=NullPool, connect_args=patience)
    except NoSuchModuleError as error:
        raise UserError(f'{key}: there is no database driver "{where.drivername}"') from error
    except ModuleNotFoundError as error:
        raise UserError(f"{key}: {where.drivername} needs the Python package {error.name}: install it") from error


def shown(url: URL) -> str:
    """The database without its password."""
    return url.difference_update_query(PASSWORDS).render_as_string(hide_password=True)


@contextmanager
def errors_explained(url: URL, what: str) -> Iterator[None]:
    """Whatever the database refuses is a UserError of one line: it could not be reached, or `what` failed there."""
    try:
        yield
    except DBAPIError as error:
        never_reached = isinstance(error, OperationalError) and error.statement is None
        said = "cannot reach" if never_reached else f"{what} failed on"
        first_line = _without_password((str(error.orig).strip().splitlines() or ["connection lost"])[0], url)
        raise UserError(f"{said} {shown(url)}: {first_line}") from error
    except SQLAlchemyError as error:
        said = _without_password(str(error).splitlines()[0], url)
        raise UserError(f"{what} failed on {shown(url)}: {said}") from error


def _without_password(text: str, url: URL) -> str:
    return masked(text, str(url.password) if url.password else None)
