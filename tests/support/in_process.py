"""A directory of its own in which the command is called in this process."""

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tickets_batch.cli.run import run

SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


@contextmanager
def directory(folder: Path, monkeypatch: pytest.MonkeyPatch, settings: str) -> Iterator[None]:
    """Be in `folder` with these settings and no others; the command's signal handlers do not outlive it."""
    for name in list(os.environ):
        if name.startswith(("TICKETS_BATCH", "OPENAI_")):
            monkeypatch.delenv(name)
    monkeypatch.chdir(folder)
    Path("tickets-batch.toml").write_text(settings)
    handlers = {number: signal.getsignal(number) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


class Here:
    """The command in a directory of its own, called in this process."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self.out = self.err = ""

    def __call__(self, *arguments: str, code: int = 0) -> str:
        """What the command prints on stdout; it must end with `code`."""
        got = run(arguments)
        self.out, self.err = self._capsys.readouterr()
        assert got == code, self.err
        return self.out

    def json(self, *arguments: str, code: int = 0) -> Any:
        return json.loads(self(*arguments, "--json", code=code))

    def submit(self, *more: str) -> str:
        """The id of a batch of the tickets of 2026-11-30, which nobody works on."""
        return self("submit", "--date", "2026-11-30", *more, code=1).strip()
