"""The right to put jobs into a batch: one process at a time, under a lease that dies with it.

While it is held the batch does not close, though its workers may have finished all that is in it so far.
"""

import os
import secrets
import socket
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Row, null, update

from jobs.states import BatchState
from jobs.store import tally
from jobs.store.database import Database
from jobs.tables import batches
from tickets_batch.errors import UserError

LOADER_SECONDS = 30.0


def take(connection: Connection, row: Row[Any], now: datetime) -> str:
    """The loader's token for a batch whose row is locked. Raises UserError while another process holds it."""
    if is_held(row, now):
        raise being_loaded(row)
    token = secrets.token_hex(16)
    connection.execute(update(batches).where(batches.c.id == row.id).values(lease(token, now)))
    return token


def lease(token: str, now: datetime, *, gives_way: bool = False) -> dict[str, Any]:
    """The columns of a fresh lease of this process; one that `gives_way` keeps only others like it away."""
    return {
        "loader_token": token,
        "loader_expires_at": now + timedelta(seconds=LOADER_SECONDS),
        "loader": {"host": socket.gethostname(), "pids": _pid_space(), "pid": os.getpid(), "gives_way": gives_way},
        "purged_at": None,
    }


def is_held(row: Row[Any], now: datetime) -> bool:
    """True while nobody else may put jobs in."""
    return is_leased(row, now) and not (row.loader or {}).get("gives_way")


def is_leased(row: Row[Any], now: datetime) -> bool:
    """True while the lease runs, unless its process was on this machine and is no more."""
    if row.loader_token is None or row.loader_expires_at <= now:
        return False
    loader = row.loader or {}
    if (loader.get("host"), loader.get("pids")) != (socket.gethostname(), _pid_space()):
        return True
    try:
        os.kill(loader["pid"], 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def being_loaded(row: Row[Any]) -> UserError:
    """What to say to the second of two submits."""
    loader = row.loader or {}
    who = f"process {loader.get('pid')} on {loader.get('host')}"
    return UserError(f"batch {row.id} is being loaded by {who}: wait for it, or try again in {LOADER_SECONDS:.0f} s")


def keep(connection: Connection, row: Row[Any], token: str, now: datetime) -> None:
    """Prolong the lease of a batch whose row is locked. Raises UserError when it is lost: roll back."""
    if row.loader_token != token:
        why = "was cancelled" if row.state in (BatchState.CANCELLING, BatchState.CANCELLED) else "was taken over"
        raise UserError(f"batch {row.id} {why} while it was being loaded: the rest of its jobs was not put in")
    expires_at = now + timedelta(seconds=LOADER_SECONDS)
    connection.execute(update(batches).where(batches.c.id == row.id).values(loader_expires_at=expires_at))


def release(db: Database, batch_id: str, token: str) -> None:
    """Give the right back, and close the batch if its workers have finished meanwhile. Raises StoreUnavailable."""
    now = db.now()
    with db.begin() as connection:
        is_ours = (batches.c.id == batch_id, batches.c.loader_token == token)
        free = {"loader_token": null(), "loader_expires_at": null(), "loader": null()}
        if connection.execute(update(batches).where(*is_ours).values(free)).rowcount:
            tally.close_if_done(connection, tally.add(connection, batch_id, {}), now)


def _pid_space() -> int:
    """The namespace in which our process id means something; 0 where the system has none."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return 0
