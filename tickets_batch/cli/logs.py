"""One line per event on stderr, in UTC."""

import logging
import sys
import time

# These write a line or more for every request or task.
CHATTY = ("httpx2", "httpcore2", "openai", "celery.app.trace", "celery.worker.strategy", "kombu", "asyncio", "alembic")


def log_to_stderr(debug: bool) -> None:
    """Send this process's log to stderr; `debug` adds what only developers need."""
    formatter = logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s", "%Y-%m-%dT%H:%M:%SZ")
    formatter.converter = time.gmtime
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.DEBUG if debug else logging.INFO)
    for name in CHATTY:
        logging.getLogger(name).setLevel(logging.INFO if debug else logging.WARNING)
