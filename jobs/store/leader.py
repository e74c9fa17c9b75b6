"""One holder at a time of a named lease, each with a higher epoch than the one before.

The holder puts its epoch on whatever it commands, so that the command of one that was replaced can be refused.
"""

from datetime import timedelta

from sqlalchemy import insert, select, update
from sqlalchemy.exc import IntegrityError

from jobs.store.database import Database
from jobs.tables import leaders


def acquire_or_renew(db: Database, name: str, holder: str, lease_seconds: float) -> int | None:
    """The epoch under which we lead, while the lease is ours, was free or has run out; None while another one holds it.

    A holder that lets its own lease run out gets a new epoch like anyone else. Nothing is taken from another one while
    the database's clock settles after a step. Raises StoreUnavailable.
    """
    now = db.now()
    of_name = leaders.c.name == name
    is_ours = leaders.c.holder == holder
    with db.read() as connection:
        lease = connection.execute(select(leaders.c.holder, leaders.c.expires_at).where(of_name)).one_or_none()
    if lease is not None and lease.holder != holder:
        if lease.expires_at > now:  # mostly, and then nothing is locked
            return None
        now = db.reread()  # after a step back, a holder that has read the clock before us renews into our past
    until = now + timedelta(seconds=lease_seconds)
    renewal = update(leaders).where(of_name, is_ours, leaders.c.expires_at > now).values(expires_at=until)
    takeover = (
        update(leaders)
        .where(of_name, leaders.c.expires_at <= now if db.is_settled else is_ours)
        .values(holder=holder, epoch=leaders.c.epoch + 1, expires_at=until)
    )
    try:
        with db.begin() as connection:
            for attempt in (renewal, takeover):
                epoch = connection.execute(attempt.returning(leaders.c.epoch)).scalar()
                if epoch is not None:
                    return int(epoch)
            first = {"name": name, "holder": holder, "epoch": 1, "expires_at": until}
            connection.execute(insert(leaders), first)
            return 1
    except IntegrityError:  # another one holds it, or was first
        return None


def resign(db: Database, name: str, holder: str) -> None:
    """Let the next one in at once; nothing happens if the lease is no longer ours. Raises StoreUnavailable."""
    now = db.now()
    is_ours = (leaders.c.name == name, leaders.c.holder == holder, leaders.c.expires_at > now)
    with db.begin() as connection:
        connection.execute(update(leaders).where(*is_ours).values(expires_at=now))
