"""Flower's settings: one address, users with a password, nothing can be changed, bounded memory.

FLOWER_USERS_FILE names a file with USER:PASSWORD, one a line.
"""

import os
from pathlib import Path


def _users() -> list[str]:
    path = os.environ.get("FLOWER_USERS_FILE")
    try:
        lines = Path(path or "").read_text(encoding="utf-8").split()
    except OSError as error:
        raise SystemExit(
            f"flower: FLOWER_USERS_FILE={path}: {error.strerror}: name a file with USER:PASSWORD"
        ) from None
    if not lines or not all(user and password for user, _, password in (line.partition(":") for line in lines)):
        raise SystemExit(f"flower: {path} has no USER:PASSWORD, one a line")
    return lines


address = "127.0.0.1"
port = 5555
basic_auth = _users()
read_only = True
max_tasks = 1000  # the newest; a busy night makes a few thousand
max_workers = 200
purge_offline_workers = 3600
enable_events = False  # the workers send them unasked
tasks_columns = "name,kwargs,state,received,started,runtime,worker"
