"""What a process under test sees of a stepped clock, of a disk that is full, and of its data after a kill."""

import os
import shutil
import struct
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
from redis.exceptions import ResponseError

from tests.chaos.disk import SmallDisk
from tests.chaos.part import STEPPED_CLOCK
from tests.chaos.world import VALKEY_FOLDER, VALKEY_OPTIONS
from tests.support.valkey import ValkeyServer
from tests.support.wait import wait_until

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


def test_a_valkey_with_a_full_disk_takes_no_writes_until_there_is_room(tmp_path: Path) -> None:
    disk = SmallDisk(tmp_path / "valkey", 2)
    server = ValkeyServer(disk.folder, *VALKEY_OPTIONS)
    try:
        if not disk.can_be_filled:
            pytest.skip("mounting a small disk takes rights that this user does not have")
        server.start()
        with server.client() as client:
            assert client.set("before", "x" * 5_000)
            disk.fill()
            wait_until(lambda: not writes(server), "Valkey to refuse")
            disk.clear()
            wait_until(lambda: writes(server), "Valkey to take writes again")
            assert client.exists("before")
    finally:
        server.kill()
        disk.remove()


@pytest.mark.parametrize("keeps_data", [True, False])
def test_a_killed_valkey_has_its_data_again_unless_they_were_removed(tmp_path: Path, keeps_data: bool) -> None:
    server = ValkeyServer(tmp_path, *VALKEY_OPTIONS)
    server.start()
    try:
        with server.client() as client:
            client.set("key", 1)
        server.kill()
        if not keeps_data:
            shutil.rmtree(tmp_path / VALKEY_FOLDER)
        server.start()
        with server.client() as client:
            assert client.exists("key") == keeps_data
    finally:
        server.kill()


def writes(server: ValkeyServer) -> bool:
    with server.client() as client:
        try:
            return bool(client.set("key", "x" * 5_000))
        except ResponseError as error:
            if "No space left" not in str(error):
                raise
            return False
