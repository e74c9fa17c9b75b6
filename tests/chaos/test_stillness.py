"""A machine that stands still is seen by whoever looks at its clock."""

import os
import signal
import subprocess
import sys
import time

from tests.chaos.stillness import STILL_SECONDS
from tests.support.night import CHECKOUT
from tests.support.wait import wait_until

LOOKS = """
from tests.chaos.stillness import Stillness
with Stillness() as stillness:
    print("looks", flush=True)
    input()
for incident in stillness.found:
    print(incident.fault.name, incident.over_at - incident.began_at)
"""


def looking() -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", LOOKS], cwd=CHECKOUT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "looks\n"
    return process


def test_who_was_stopped_for_a_while_knows_for_how_long() -> None:
    process = looking()
    os.kill(process.pid, signal.SIGSTOP)
    until = time.monotonic() + 2 * STILL_SECONDS
    wait_until(lambda: time.monotonic() > until, "a while to pass")
    os.kill(process.pid, signal.SIGCONT)
    said, _ = process.communicate("\n", timeout=30)
    what, _, seconds = said.splitlines()[0].rpartition(" ")
    assert what == "pause everything"
    assert float(seconds) > 1.5 * STILL_SECONDS
