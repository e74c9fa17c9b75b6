"""What a process under test sees of a stepped clock, and a disk that is full."""

import os
import struct
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.chaos.disk import SmallDisk
from tests.chaos.part import STEPPED_CLOCK

HOUR_SECONDS = 3_600.0
NOW = (
    "import time, datetime as d; "
    "print(time.time(), time.time_ns() / 1e9, d.datetime.now(d.UTC).timestamp(), d.datetime.now().timestamp())"
)


@pytest.mark.parametrize("step_seconds", [0.0, HOUR_SECONDS, -HOUR_SECONDS])
def test_every_wall_clock_of_a_process_is_stepped(tmp_path: Path, step_seconds: float) -> None:
    file = tmp_path / "clock"
    file.write_bytes(struct.pack("d", step_seconds))
    environment = {**os.environ, "PYTHONPATH": str(STEPPED_CLOCK), "CHAOS_CLOCK": str(file)}
    asked = [sys.executable, "-P", "-c", NOW]
    before = datetime.now(UTC).timestamp()
    said = subprocess.run(asked, env=environment, capture_output=True, text=True, check=True).stdout
    after = datetime.now(UTC).timestamp()
    for seen in map(float, said.split()):
        assert before - 1 <= seen - step_seconds <= after + 1


def test_a_full_disk_takes_no_byte_more_until_it_is_cleared(tmp_path: Path) -> None:
    disk = SmallDisk(tmp_path / "disk", 1)
    try:
        if not disk.can_be_filled:
            pytest.skip("mounting a small disk takes rights that this user does not have")
        disk.fill()
        with pytest.raises(OSError, match="No space left"):
            (disk.folder / "file").write_bytes(b"x" * 10_000)
        disk.clear()
        assert (disk.folder / "file").write_bytes(b"x" * 10_000) == 10_000
    finally:
        disk.remove()
