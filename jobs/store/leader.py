"""One holder at a time of a named lease, each with a higher epoch than the one before.

The holder puts its epoch on whatever it commands, so that the command of one that was replaced can be refused.
"""

from datetime import UTC, datetime, timedelta

from sqlalchemy import case, insert, or_, select, update
from sqlalchemy.exc import IntegrityError

from jobs.store.clock import SETTLING_SECONDS
from jobs.store.database import Database
from jobs.tables import leaders


def acquire_or_renew(db: Database, name: str, holder: str, lease_seconds: float) -> int | None:
    """The epoch under which we lead, while the lease is ours, was free or has run out; None while another one holds it.

    A holder that lets its own lease run out gets a new epoch like anyone else. Nothing is taken from another one while
    the database's clock settles after a step; of a clock that is known, a lease longer than any can be is a dead one's.
    Epochs are at least the seconds since 1970: a new or restored database beside the same ledger rises above those that
    the ledger has seen. Raises StoreUnavailable.
    """
    now = db.now()
    of_name = leaders.c.name == name
    is_ours = leaders.c.holder == holder
    with db.read() as connection:
        lease = connection.execute(select(leaders.c.holder, leaders.c.expires_at).where(of_name)).one_or_none()
    if lease is not None and lease.holder != holder:
        if not _is_over(lease.expires_at, now, lease_seconds, db):  # mostly, and then nothing is locked
            return None
        now = db.reread()  # after a step back, a holder that has read the clock before us renews into our past
    renewal = update(leaders).where(of_name, is_ours, leaders.c.expires_at > now)
    is_free = or_(leaders.c.expires_at <= now, leaders.c.expires_at > _impossible(now, lease_seconds, db))
    takeover = update(leaders).where(of_name, is_free if db.is_settled else is_ours)
    try:
        with db.begin() as connection:
            begun = db.now()  # not before the lock was waited for
            until, least = begun + timedelta(seconds=lease_seconds), int(begun.timestamp())
            rising = case((leaders.c.epoch >= least, leaders.c.epoch + 1), else_=least)
            for attempt in (
                renewal.values(expires_at=until),
                takeover.values(holder=holder, epoch=rising, expires_at=until),
            ):
                epoch = connection.execute(attempt.returning(leaders.c.epoch)).scalar()
                if epoch is not None:
                    return int(epoch)
            first = {"name": name, "holder": holder, "epoch": least, "expires_at": until}
            connection.execute(insert(leaders), first)
            return least
    except IntegrityError:  # another one holds it, or was first
        return None


def _is_over(expires_at: datetime, now: datetime, lease_seconds: float, db: Database) -> bool:
    return expires_at <= now or expires_at > _impossible(now, lease_seconds, db)


def _impossible(now: datetime, lease_seconds: float, db: Database) -> datetime:
    """No lease of a living holder ends later: one that does was written before the clock was set back."""
    seconds = lease_seconds + SETTLING_SECONDS
    return now + timedelta(seconds=seconds) if db.is_clock_known else datetime.max.replace(tzinfo=UTC)


def resign(db: Database, name: str, holder: str) -> None:
    """Let the next one in at once; nothing happens if the lease is no longer ours. Raises StoreUnavailable."""
    now = db.now()
    is_ours = (leaders.c.name == name, leaders.c.holder == holder, leaders.c.expires_at > now)
    with db.begin() as connection:
        connection.execute(update(leaders).where(*is_ours).values(expires_at=now))
