"""A submit that is killed after its first chunk: `python -m tests.support.killed_submit URL TICKETS`."""

import os
import signal
import sys

from jobs.store import chunks
from jobs.store.chunks import Load, Put
from jobs.store.database import Database
from jobs.store.spool import Spooled
from tests.support.store import submit

put = chunks.put


def put_and_die(db: Database, load: Load, chunk: list[Spooled]) -> Put:
    put(db, load, chunk)
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("unreachable")


chunks.put = put_and_die  # type: ignore[assignment]
submit(Database.open(sys.argv[1]), int(sys.argv[2]))
