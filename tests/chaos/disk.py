"""A small disk of its own for a database, so that it can be filled."""

import os
import subprocess
from contextlib import suppress
from pathlib import Path


class SmallDisk:
    """A tmpfs, where this machine lets us mount one; elsewhere a plain folder, which cannot be filled."""

    def __init__(self, folder: Path, megabytes: int) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        asked = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(folder)]
        try:
            self.can_be_filled = os.geteuid() == 0 and subprocess.run(asked, capture_output=True).returncode == 0
        except OSError:
            self.can_be_filled = False
        self._ballast = folder / "ballast"

    @property
    def is_full(self) -> bool:
        return self._ballast.exists()

    def fill(self) -> None:
        """Leave no byte free."""
        assert self.can_be_filled
        with suppress(OSError), self._ballast.open("wb", buffering=0) as file:
            while True:
                file.write(b"\0" * (1 << 16))

    def clear(self) -> None:
        """Give the room back."""
        self._ballast.unlink(missing_ok=True)

    def remove(self) -> None:
        """Unmount it; what was on it is gone."""
        if self.can_be_filled:
            subprocess.run(["umount", "--lazy", str(self.folder)], check=True, capture_output=True)
