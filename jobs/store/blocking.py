"""A blocked batch: no job of it can succeed now, so one job at a time finds out whether that is still so."""

from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Row, null, update

from jobs.store import events
from jobs.store.events import EventKind
from jobs.tables import batches
from jobs.text import storable

FIRST_PROBE_SECONDS = 5.0
LONGEST_PROBE_SECONDS = 300.0


def start_probe(connection: Connection, row: Row[Any], token: str, now: datetime) -> None:
    """This claim is the probe: no other one for a long while, unless it comes back without an answer."""
    _set(connection, row, probe_token=token, probe_at=now + timedelta(seconds=LONGEST_PROBE_SECONDS))


def judge(
    connection: Connection, row: Row[Any], tokens: Collection[str], why: str | None, works: bool, now: datetime
) -> None:
    """What jobs that ended under `tokens` say of their batch: the endpoint works, or no job can succeed and `why`.

    Only the probe's own verdict prolongs the wait: of a hundred requests in flight when the endpoint went, a hundred
    say the same thing once.
    """
    is_probe = row.probe_token is not None and row.probe_token in tokens
    if works:
        if row.blocked is not None:
            _set(connection, row, blocked=null(), probe_at=null(), probe_token=null(), probes=0)
            events.add(connection, now, EventKind.UNBLOCKED, row.id, was=row.blocked)
    elif why is not None and row.blocked is None:
        why = storable(why)[:500]
        _set(connection, row, blocked=why, probe_at=now + timedelta(seconds=FIRST_PROBE_SECONDS), probes=0)
        events.add(connection, now, EventKind.BLOCKED, row.id, why=why)
    elif why is not None and is_probe:
        probes = row.probes + 1
        wait = min(FIRST_PROBE_SECONDS * 2**probes, LONGEST_PROBE_SECONDS)
        _set(
            connection,
            row,
            blocked=storable(why)[:500],
            probe_at=now + timedelta(seconds=wait),
            probe_token=null(),
            probes=probes,
        )
    elif is_probe:  # yielded, lost or failed in some other way: it has told us nothing
        _set(connection, row, probe_at=now + timedelta(seconds=FIRST_PROBE_SECONDS), probe_token=null())


def _set(connection: Connection, row: Row[Any], **values: Any) -> None:
    connection.execute(update(batches).where(batches.c.id == row.id).values(**values))
