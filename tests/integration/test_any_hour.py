"""The tests of the command at other hours of the day: none may pass only at the hour at which it was written."""

import os
import struct
import subprocess
import sys
from datetime import UTC, datetime, time, timedelta
from pathlib import Path

import pytest

from tests.chaos.part import STEPPED_CLOCK

pytestmark = pytest.mark.rare

TESTS = sorted(
    str(path)
    for path in Path(__file__).parent.glob("test_*.py")
    if "from tests.support.in_process import" in path.read_text()
)


def seconds_until(hour: time) -> float:
    now = datetime.now(UTC)
    day = now.date() + timedelta(days=1)
    return (datetime.combine(day, hour, UTC) - now).total_seconds()


@pytest.mark.parametrize("hour", [time(0, 31), time(7, 1), time(12, 30), time(23, 59)], ids=str)
def test_of_the_command(tmp_path: Path, hour: time) -> None:
    assert TESTS
    clock = tmp_path / "clock"
    clock.write_bytes(struct.pack("d", seconds_until(hour)))
    environment = {**os.environ, "PYTHONPATH": str(STEPPED_CLOCK), "CHAOS_CLOCK": str(clock)}
    command = [sys.executable, "-m", "pytest", "-q", "-m", "not long and not rare", "-p", "no:cacheprovider", *TESTS]
    tried = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert tried.returncode == 0, tried.stdout + tried.stderr
