"""The directory in which embedded services live, and who owns which of them."""

import fcntl
import os
from pathlib import Path

from tickets_batch.errors import UserError


class Home:
    """Paths under `home`. `run/` holds addresses, passwords and locks and is closed to other users."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self.run = self.path / "run"
        self.logs = self.path / "logs"
        self.redis_url_file = self.run / "redis-url"

    def make(self) -> None:
        """Create the directories. Raises UserError when that cannot be done."""
        try:
            self.path.mkdir(parents=True, exist_ok=True, mode=0o700)  # tickets are nobody else's to read
            self.logs.mkdir(exist_ok=True)
            self.run.mkdir(exist_ok=True, mode=0o700)
            self.run.chmod(0o700)
        except OSError as error:
            raise UserError(
                f"cannot write under home ({self.path}): {error.strerror}; set home in tickets-batch.toml to a "
                "directory that you may write"
            ) from error

    def redis_url(self) -> str | None:
        """The address of the embedded Valkey that was last started here; None when there never was one."""
        try:
            return self.redis_url_file.read_text(encoding="utf-8").strip() or None
        except OSError:
            return None

    def running_file(self, service: str) -> Path:
        """Where the owner of a service writes down its processes."""
        return self.run / f"{service}.json"

    def lock(self, service: str) -> "Ownership":
        """The lock whose holder runs the service for everybody in this home."""
        return Ownership(self.run / f"{service}.lock")


class Ownership:
    """A lock file: held by at most one process, and let go by the kernel when that process ends in any way."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: int | None = None

    @property
    def is_held(self) -> bool:
        """True when this object holds the lock."""
        return self._file is not None

    def take(self) -> bool:
        """Take the lock if nobody has it."""
        if self._file is not None:
            return True
        file = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
            return False
        self._file = file
        return True

    def release(self) -> None:
        """Let go of the lock."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
