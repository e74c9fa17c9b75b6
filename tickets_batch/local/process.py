"""Processes that an earlier command may have left behind: known again by number and start time, and ended."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def identity(pid: int) -> str | None:
    """What tells this process from any other that ever had its number: when it was started. None: there is no such."""
    if BOOT_ID.exists():
        try:
            stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return None
        state, *fields = stat.rpartition(")")[2].split()
        return (
            None if state == "Z" else f"{BOOT_ID.read_text().strip()} {fields[18]}"
        )  # field 22: clock ticks since boot
    shown = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return shown.stdout.strip() or None


def record(path: Path, pids: Iterable[int]) -> None:
    """Write down which processes run, for whoever comes after a crash of this one."""
    running = {str(pid): identity(pid) for pid in pids}
    write_private(path, json.dumps(running))


def end_leftovers(path: Path, wait_seconds: float = 5.0) -> None:
    """Kill what `path` lists and still runs, and wait until it is gone.

    A process that merely has the same number now is left alone.
    """
    try:
        listed = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return
    leftovers = [int(pid) for pid, started in listed.items() if started and identity(int(pid)) == started]
    for pid in leftovers:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    deadline = time.monotonic() + wait_seconds
    while any(identity(pid) == listed[str(pid)] for pid in leftovers) and time.monotonic() < deadline:
        time.sleep(0.02)


def write_private(path: Path, text: str) -> None:
    """Replace a file as a whole, readable by its owner alone from its first byte."""
    beside = path.with_name(path.name + ".new")
    beside.unlink(missing_ok=True)
    with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
    beside.replace(path)
