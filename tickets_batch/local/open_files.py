"""How many files a process may have open: each connection is one."""

import logging
import resource

from tickets_batch.settings import Settings

OTHER_FILES = 256  # beside the connections that are counted: Redis, database, logs, idle ones

log = logging.getLogger(__name__)


def of_gateway(connections: int) -> int:
    """What the gateway needs: for each caller a second connection, to the model."""
    return 2 * connections + OTHER_FILES


def of_worker(settings: Settings) -> int:
    """What one worker process needs: to each pool it may keep as many connections as it ever had requests there."""
    at_once = settings.worker.at_once
    return sum(min(at_once, pool.capacity.slots) for pool in settings.pool) + OTHER_FILES


def allowed() -> int | None:
    """The most that this process may come to, None without end."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return None if hard == resource.RLIM_INFINITY else hard


def make_room_for(needed: int, what: str) -> None:
    """Let this process and its children open so many, as far as the system lets it; `what` needs them."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    most = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    if most < needed:
        log.warning("%s need %d open files, and %d are allowed: raise ulimit -n", what, needed, most)
