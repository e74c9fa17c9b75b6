"""One line per event on stderr, in UTC."""

import logging
import sys
import time

from tickets_batch.words import printable

# These write a line or more for every request or task.
CHATTY = ("httpx2", "openai", "celery.app.trace", "celery.worker.strategy", "kombu", "asyncio", "alembic")

CELERYS = ("celery.worker.request", "celery.worker.consumer.consumer")  # which take messages


class OneLine(logging.Formatter):
    """Whatever a message quotes, it begins no line of its own, and does nothing to a terminal; a traceback may."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        """The line without the traceback."""
        return printable(super().formatMessage(record))


def log_to_stderr(debug: bool) -> None:
    """Send this process's log to stderr; `debug` adds what only developers need."""
    formatter = OneLine("%(asctime)s %(levelname)s %(name)s %(message)s", "%Y-%m-%dT%H:%M:%SZ")
    formatter.converter = time.gmtime
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.DEBUG if debug else logging.INFO)
    for name in CHATTY:
        logging.getLogger(name).setLevel(logging.INFO if debug else logging.WARNING)
    for name in CELERYS:
        logging.getLogger(name).addFilter(_in_one_line)


def _in_one_line(record: logging.LogRecord) -> bool:
    """A message that a lost broker did not let us acknowledge comes again, and does no harm: no traceback for it."""
    if str(record.msg).startswith(("Couldn't ack", "Couldn't reject")):
        record.levelno, record.levelname = logging.WARNING, "WARNING"
        record.exc_info = None
    return True
