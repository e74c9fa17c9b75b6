"""What goes to stderr: one line per event."""

import subprocess
import sys

import pytest

# A message of Celery's whose broker is gone when it is acknowledged, by Celery's own code.
GONE = """
from celery.worker import request
from kombu.message import Message
from tickets_batch.cli.logs import log_to_stderr

class Gone:
    def basic_ack(self, *_, **__):
        raise ConnectionResetError(104, "Connection reset by peer")
    basic_reject = basic_ack
    no_ack_consumers = None

log_to_stderr(False)
Message(channel=Gone(), delivery_tag="1").{how}_log_error(request.logger, (OSError,))
try:
    raise KeyError("x")
except KeyError:
    request.logger.exception("nobody thought of this")
"""


@pytest.mark.parametrize("how", ["ack", "reject"])
def test_a_broker_that_went_before_a_message_was_acknowledged_is_one_line(how: str) -> None:
    script = GONE.format(how=how)
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stderr
    first, second, *traceback = said.splitlines()
    assert f"WARNING celery.worker.request Couldn't {how} '1'" in first
    assert "Connection reset by peer" in first
    assert "ERROR celery.worker.request nobody thought of this" in second
    assert traceback[0].startswith("Traceback")
    assert traceback[-1] == "KeyError: 'x'"


def test_what_a_message_quotes_begins_no_line_and_moves_no_cursor() -> None:
    script = """
import logging
from tickets_batch.cli.logs import log_to_stderr
log_to_stderr(False)
logging.getLogger("jobs").warning("ticket %s", "1\\n2026-11-30T00:00:00Z INFO jobs all is well\\r\\x1b[31m\\u202e")
"""
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stderr
    assert said.count("\n") == 1
    assert said.rstrip("\n").isprintable()
