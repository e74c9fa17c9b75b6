"""The engine for tests: as a process of its own, or on a thread of this one. Both are steered over HTTP."""

import asyncio
import json
import os
import selectors
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

from scheduler.simulation.engine.profile import EngineProfile
from tests.engine.faults import Rule
from tests.engine.log import LogRow, decode
from tests.engine.server import EngineServer
from tests.engine.service import ServiceSettings

CHECKOUT = Path(__file__).resolve().parents[2]


class EngineHandle:
    """A running engine and what a test does with it."""

    address = ""

    @property
    def base_url(self) -> str:
        """What an OpenAI client takes as its base URL."""
        return f"{self.address}/v1"

    @property
    def port(self) -> int:
        port = urlsplit(self.address).port
        assert port is not None, "the engine is not running"
        return port

    def log(self, after: int = 0) -> list[LogRow]:
        """The requests that have ended, in that order; without the first `after`."""
        return decode(self._ask("GET", f"/control/log?after={after}"))

    def state(self) -> dict[str, Any]:
        """What is in the engine now: running, waiting, the same by class, kv_usage, ended, frozen."""
        state: dict[str, Any] = json.loads(self._ask("GET", "/control/state"))
        return state

    def under_way(self) -> list[LogRow]:
        """The requests that have not ended yet."""
        return decode(self._ask("GET", "/control/calls"))

    def busy(self) -> int:
        """Calls that are in the engine now, running or waiting."""
        state = self.state()
        return int(state["running"]) + int(state["waiting"])

    def metrics(self) -> str:
        """The page of /metrics."""
        return self._ask("GET", "/metrics").decode()

    def metric(self, name: str) -> float:
        """The sum of all samples of one metric, whatever their labels."""
        samples = [line.rpartition(" ") for line in self.metrics().splitlines() if not line.startswith("#")]
        found = [float(value) for key, _, value in samples if key.partition("{")[0] == name]
        if not found:
            raise KeyError(name)
        return sum(found)

    def set_faults(self, *rules: Rule, seed: int = 0) -> None:
        """Replace the scripted faults; none ends them all but those that tickets carry themselves."""
        self._tell("faults", {"rules": [rule.as_json() for rule in rules], "seed": seed})

    def set_profile(self, **changes: Any) -> None:
        """Change fields of the profile from the engine's next step on."""
        self._tell("profile", changes)

    def change_settings(self, **changes: Any) -> None:
        """Change settings of the service or of its answers."""
        self._tell("settings", changes)

    def freeze(self, seconds: float | None = None) -> None:
        """Stop the engine's work, not its server, for a while or until `thaw`."""
        self._tell("freeze", {"seconds": seconds})

    def thaw(self) -> None:
        self._tell("thaw", {})

    def reset(self) -> None:
        """Make it as it was at the start, without log and faults; calls under way go on."""
        self._tell("reset", {})

    def _tell(self, what: str, body: Mapping[str, Any]) -> None:
        self._ask("POST", f"/control/{what}", json.dumps(body).encode())

    def _ask(self, method: str, path: str, body: bytes | None = None) -> bytes:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request(method, path, body)
            response = connection.getresponse()
            answer = response.read()
        finally:
            connection.close()
        if response.status != 200:
            raise RuntimeError(f"{method} {path}: {response.status} {answer.decode(errors='replace')}")
        return answer


class EngineProcess(EngineHandle):
    """A context manager around `python -m tests.engine`; the process also ends when this one does."""

    def __init__(
        self,
        profile: EngineProfile | None = None,
        *options: str,
        port: int = 0,
        log_path: Path | None = None,
    ) -> None:
        values = asdict(profile or EngineProfile())
        self._command = [sys.executable, "-m", "tests.engine", "--die-with-parent", "--set", json.dumps(values)]
        self._command += [*options, "--port", str(port)]
        if log_path is not None:
            self._command += ["--log", str(log_path)]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None, "the engine is not running"
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def __enter__(self) -> Self:
        self.start()
        return self

    def start(self) -> None:
        """Begin, or begin again after `stop` or `kill`: on the port that was given, with nothing in memory."""
        self._process = subprocess.Popen(self._command, cwd=CHECKOUT, stdout=subprocess.PIPE)
        try:
            self.address = self._printed_url().removesuffix("/v1")
            self._ask("GET", "/health")
        except BaseException:
            self.kill()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def pause(self) -> None:
        """SIGSTOP: the whole process stands still, its server too."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def stop(self) -> None:
        """End it in good order; harmless when it has ended already."""
        if self._process is not None:
            self._process.terminate()
            self._process.send_signal(signal.SIGCONT)
            self._reap()

    def kill(self) -> None:
        """SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._reap()

    def _reap(self) -> None:
        process, self._process = self._process, None
        assert process is not None
        assert process.stdout is not None
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise
        finally:
            process.stdout.close()

    def _printed_url(self, timeout_seconds: float = 20) -> str:
        assert self._process is not None
        assert self._process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            if not selector.select(timeout_seconds):
                raise RuntimeError(f"the engine printed no address within {timeout_seconds:g} s")
        line = self._process.stdout.readline().decode().strip()
        if not line:
            raise RuntimeError(f"the engine ended at its start with exit code {self._process.wait(timeout=10)}")
        return line


class EngineThread(EngineHandle):
    """The same on a thread of this process: starts in milliseconds, but shares this process's interpreter."""

    def __init__(
        self,
        profile: EngineProfile | None = None,
        settings: ServiceSettings | None = None,
        *,
        port: int = 0,
        log_path: Path | None = None,
    ) -> None:
        self._make_server = partial(EngineServer, profile or EngineProfile(), settings, port=port, log_path=log_path)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopped: asyncio.Event | None = None
        self._ready = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._ready.wait()
        if self._error is not None:
            self._thread.join()
            raise self._error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._loop is not None
        assert self._stopped is not None
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stopped.set)
        self._thread.join()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            self._error = error
        finally:
            self._ready.set()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopped = asyncio.Event()
        async with self._make_server() as server:
            self.address = server.address
            self._ready.set()
            await self._stopped.wait()
