"""A directory of its own in which the command is called in this process."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

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
