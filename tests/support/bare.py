"""A bare environment outside the checkout: a wheel, what it says that it needs, and nothing else."""

import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import Requirement

from tests.support.requirements import canonical, is_needed


class BareEnvironment:
    """An environment of its own. What a wheel needs is linked into it from this one, distribution by distribution.

    So nothing that is merely installed here can be imported there: no tool of the tests, and nothing of the checkout.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
        (self.site,) = folder.glob("lib/python3.*/site-packages")
        self._linked: set[tuple[str, frozenset[str]]] = set()

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    def install(self, wheel: Path) -> None:
        """Install a wheel without what it needs, and without any network."""
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(self.python)]
        subprocess.run([*pip, "install", "--quiet", "--no-deps", "--no-index", str(wheel)], check=True)

    def provide(self, requirement: Requirement) -> None:
        """Link a distribution that is installed here, and everything that it needs."""
        key = (canonical(requirement.name), frozenset(requirement.extras))
        if key in self._linked:
            return
        self._linked.add(key)
        found = distribution(requirement.name)
        assert requirement.specifier.contains(found.version), f"{requirement} is not installed here"
        for file in found.files or ():
            top = file.parts[0]
            if top not in ("..", "__pycache__") and not (self.site / top).exists():
                (self.site / top).symlink_to(Path(str(found.locate_file(top))).resolve())
        for text in found.requires or ():
            needed = Requirement(text)
            if is_needed(needed, set(requirement.extras)):
                self.provide(needed)

    def run(self, code: str, cwd: Path) -> str:
        """What a piece of Python prints there."""
        asked = [str(self.python), "-P", "-c", code]
        return subprocess.run(asked, cwd=cwd, env={}, check=True, capture_output=True, text=True).stdout.strip()
