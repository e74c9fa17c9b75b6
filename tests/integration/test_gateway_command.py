"""`tickets-batch gateway` as a process: where it listens, how it stops, and that `up` runs it."""

import os
import signal
import socket
import sys
from pathlib import Path

import pytest

from tests.engine.process import EngineThread
from tests.support.command import Command
from tests.support.engines import chat_body
from tests.support.gateways import ROOT, chat_settings, commanded, complete, fetch, send, until
from tests.support.valkey import ValkeyServer
from tests.support.wait import wait_until
from tickets_batch.local.environment import child_environment
from tickets_batch.settings import Settings

pytest_plugins = ["tests.support.engine_fixtures"]


@pytest.fixture
def settings(valkey: ValkeyServer, slow_engine: EngineThread) -> Settings:
    return chat_settings(valkey.url, slow_engine.base_url)


def test_told_to_stop_it_lets_an_answer_under_way_end(settings: Settings, tmp_path: Path) -> None:
    with commanded(settings, tmp_path) as (command, door), send(door, chat_body(100, stream=True)) as chat:
        until(chat, b'"content":"t')
        command.send(signal.SIGTERM)
        assert until(chat, b"[DONE]")
        assert command.wait(20) == 0
        assert "Traceback" not in command.err


def test_what_takes_too_long_to_end_is_stopped_at_the_engine(
    settings: Settings, slow_engine: EngineThread, tmp_path: Path
) -> None:
    with commanded(settings, tmp_path) as (command, door), send(door, chat_body(900, stream=True)) as chat:
        until(chat, b'"content":"t')
        slow_engine.freeze()
        command.send(signal.SIGTERM)
        assert command.wait(20) == 0
        slow_engine.thaw()
        assert "Traceback" not in command.err
        rows = wait_until(slow_engine.log, "the engine to be done with it")
        assert rows[0].outcome == "aborted"


def test_an_address_in_use_is_one_line(settings: Settings, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        gateway = settings.gateway.model_copy(update={"listen": listen})
        environment = child_environment(settings.model_copy(update={"gateway": gateway, "home": tmp_path / "home"}))
        argv = [sys.executable, "-m", "tickets_batch", "gateway"]
        command = Command(argv, folder=ROOT, environment={**os.environ, **environment}, output=tmp_path / "gateway")
        assert command.wait(30) == 1
        (line,) = command.talk
        assert f"cannot listen on {listen}: Address already in use" in line


@pytest.mark.long
def test_up_runs_it_where_the_settings_have_one(slow_engine: EngineThread, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    file = tmp_path / "tickets-batch.toml"
    file.write_text(
        f'home = "{tmp_path / "home"}"\n[gateway]\nlisten = "127.0.0.1:{port}"\n[[pool]]\nname = "gpu"\n'
        f'base_url = "{slow_engine.base_url}"\nmodel = "test-model"\ncapacity = {{ slots = 4 }}\n'
    )
    argv = [sys.executable, "-m", "tickets_batch", "up", "--config", str(file)]
    command = Command(argv, folder=ROOT, environment=dict(os.environ), output=tmp_path / "up")
    try:

        def is_up() -> bool:
            assert command.code is None, command.err
            try:
                return fetch(f"http://127.0.0.1:{port}", "GET", "/healthz")[0] == 200
            except OSError:
                return False

        wait_until(is_up, "the gateway to answer", 60)
        assert complete(f"http://127.0.0.1:{port}", chat_body(2)).choices
        parts = "running valkey, gateway, scheduler, worker"
        wait_until(lambda: any(parts in line for line in command.talk), "the other parts", 60)
        command.send(signal.SIGTERM)
        assert command.wait(60) == 0
    finally:
        command.close()
