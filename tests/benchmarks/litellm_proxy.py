"""LiteLLM's proxy as a process, from an installation of its own: what the gateway's cost is put beside."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path

import psutil  # type: ignore[import-untyped]

from tests.support.command import Command
from tests.support.wait import wait_until
from tickets_batch.local.ports import free_port

# One worker process, as the gateway is one; no database, no keys to look up, no debug log: what its pages on production
# name as fast. Its table of prices comes from its own package, and nothing is told to anybody.
ENVIRONMENT = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true",
    "LITELLM_LOG": "ERROR",
    "LITELLM_MODE": "PRODUCTION",
    "LITELLM_TELEMETRY": "False",
}
START_SECONDS = 120


@contextmanager
def proxied(binary: Path, engine_base_url: str, folder: Path) -> Iterator[tuple[psutil.Process, str]]:
    """The proxy in front of an engine, and its address without /v1; `binary` is the `litellm` of its virtualenv."""
    config = folder / "litellm.yaml"  # JSON is YAML too
    config.write_text(json.dumps(_config(engine_base_url)))
    port = free_port()
    command = Command(
        [str(binary), "--config", str(config), "--host", "127.0.0.1", "--port", str(port), "--num_workers", "1"],
        folder=folder,
        environment={"PATH": os.environ["PATH"], "HOME": str(folder), **ENVIRONMENT},
        output=folder / "litellm",
    )
    try:
        wait_until(lambda: _answers(command, port), "LiteLLM's proxy to answer", START_SECONDS)
        yield psutil.Process(command.pid), f"http://127.0.0.1:{port}"
    finally:
        command.close()


def _config(engine_base_url: str) -> dict[str, object]:
    served = {"model": "openai/test-model", "api_base": engine_base_url, "api_key": "none"}
    return {
        "model_list": [{"model_name": "test-model", "litellm_params": served}],
        "litellm_settings": {"telemetry": False, "set_verbose": False, "num_retries": 0},
        "general_settings": {"disable_spend_logs": True},
    }


def _answers(command: Command, port: int) -> bool:
    assert command.code is None, command.err
    connection = HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/health/liveliness")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()
